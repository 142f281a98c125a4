package chain

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	oteltrace "go.opentelemetry.io/otel/trace"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/filters/impersonation"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericfeatures "k8s.io/apiserver/pkg/features"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericfilters "k8s.io/apiserver/pkg/server/filters"
	"k8s.io/apiserver/pkg/server/routine"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
	"k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"

	"github.com/kinproc/kinproc/chain/internal/tracer"
	"github.com/kinproc/kinproc/chain/internal/writers"
	"github.com/kinproc/kinproc/chain/trace"
)

// filters returns a handler that passes requests through kube-apiserver's filters, and this
// package's own, before it passes them on to the first link. It is called while that link is being
// made.
func (c *Chain) filters(handler http.Handler, config *genericapiserver.Config) http.Handler {
	handler = traceLink(func() link { return c.Aggregator }, c.Core, handler)
	for _, filter := range slices.Backward(c.filterOrder(config)) {
		handler = filter(handler)
	}
	return handler
}

// filterOrder returns the filters in the order in which a request passes through them. It is that
// of [genericapiserver.DefaultBuildHandlerChain] but for what costs time and serves nobody here:
//   - The filters' own latency metric (apiserver_request_filter_duration_seconds) is missing.
//   - Requests are traced (KEP-647) only if the client sends a trace, to pass it on.
//   - The filter for timeouts shares its goroutine with the calls to etcd.
//   - ShutdownSendRetryAfter, ShutdownWatchTerminationGracePeriod and GoawayChance have no effect.
func (c *Chain) filterOrder(config *genericapiserver.Config) []func(http.Handler) http.Handler {
	authn, authz := config.Authentication, tracedAuthorizer{config.Authorization.Authorizer}
	longRunning, codecs := config.LongRunningFunc, config.Serializer
	rules := config.AuditPolicyRuleEvaluator
	return []func(http.Handler) http.Handler{
		refuseUnread,
		c.followers.WithTrace,
		genericapifilters.WithAuditInit,
		func(h http.Handler) http.Handler {
			return genericfilters.WithPanicRecovery(h, config.RequestInfoResolver)
		},
		func(h http.Handler) http.Handler {
			return genericapifilters.WithMuxAndDiscoveryComplete(h, c.complete)
		},
		genericapifilters.WithRequestReceivedTimestamp,
		func(h http.Handler) http.Handler {
			return genericapifilters.WithRequestInfo(h, config.RequestInfoResolver)
		},
		func(h http.Handler) http.Handler {
			if !config.FeatureGate.Enabled(genericfeatures.APIServingWithRoutine) {
				return h
			}
			return routine.WithRoutine(h, longRunning)
		},
		genericapifilters.WithLatencyTrackers,
		genericfilters.WithHTTPLogging,
		func(h http.Handler) http.Handler {
			return genericfilters.WithHSTS(h, config.HSTSDirectives)
		},
		genericapifilters.WithCacheControl,
		func(h http.Handler) http.Handler {
			return genericfilters.WithWaitGroup(h, longRunning, config.NonLongRunningRequestWaitGroup)
		},
		func(h http.Handler) http.Handler {
			return genericapifilters.WithRequestDeadline(h, config.AuditBackend, rules, longRunning, codecs,
				config.RequestTimeout)
		},
		func(h http.Handler) http.Handler { return c.workers.Filter(h, longRunning) },
		genericapifilters.WithWarningRecorder,
		func(h http.Handler) http.Handler {
			return genericfilters.WithCORS(h, config.CorsAllowedOriginList, nil, nil, nil, "true")
		},
		func(h http.Handler) http.Handler {
			failed := genericapifilters.WithFailedAuthenticationAudit(
				genericapifilters.Unauthorized(codecs), config.AuditBackend, rules)
			return genericapifilters.WithAuthentication(h,
				tracedAuthenticator{authn.Authenticator, config.Authorization.Authorizer}, failed,
				authn.APIAudiences, authn.RequestHeaderConfig)
		},
		func(h http.Handler) http.Handler { return withTracing(h, config.TracerProvider) },
		func(h http.Handler) http.Handler {
			return genericapifilters.WithAudit(h, config.AuditBackend, rules, longRunning)
		},
		writers.WithSender,
		func(h http.Handler) http.Handler {
			if !config.FeatureGate.Enabled(genericfeatures.ConstrainedImpersonation) {
				return impersonation.WithImpersonation(h, authz, codecs)
			}
			return impersonation.WithConstrainedImpersonation(h, authz, codecs)
		},
		c.faults.Filter,
		func(h http.Handler) http.Handler { return limited(h, config) },
		func(h http.Handler) http.Handler {
			return genericapifilters.WithAuthorization(h, authz, codecs)
		},
		func(h http.Handler) http.Handler { return c.streams.filter(h, longRunning, codecs) },
		func(h http.Handler) http.Handler { return answerPanics(h, codecs) },
		func(h http.Handler) http.Handler { return c.checkBodies(h, config.MaxRequestBodyBytes) },
		c.awaitDiscovery,
		func(h http.Handler) http.Handler { return tracer.WithSpans(h, c.stored) },
		bufferLists,
	}
}

// awaitDiscovery lets requests for discovery documents and those of OpenAPI v3 wait for what
// clients have written in CRDs, as [extensions.Server.Await] says.
func (c *Chain) awaitDiscovery(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := genericapirequest.RequestInfoFrom(r.Context())
		path := r.URL.Path
		if ok && !info.IsResourceRequest && (path == "/apis" || strings.HasPrefix(path, "/apis/") ||
			strings.HasPrefix(path, "/openapi/v3")) {
			c.Extensions.Await(r.Context())
		}
		handler.ServeHTTP(w, r)
	})
}

// withTracing passes on to webhooks and extension API servers the trace that a client has sent, as
// W3C Trace Context or Baggage.
func withTracing(handler http.Handler, provider oteltrace.TracerProvider) http.Handler {
	traced := genericapifilters.WithTracing(handler, provider)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header["Traceparent"] == nil && r.Header["Baggage"] == nil {
			handler.ServeHTTP(w, r)
			return
		}
		traced.ServeHTTP(w, r)
	})
}

// limited divides concurrent requests by API Priority and Fairness (KEP-1040), or limits their
// number without it.
func limited(handler http.Handler, config *genericapiserver.Config) http.Handler {
	flows := config.FlowControl
	if flows == nil {
		return genericfilters.WithMaxInFlightLimit(handler, config.MaxRequestsInFlight,
			config.MaxMutatingRequestsInFlight, config.LongRunningFunc)
	}
	estimator := flowcontrolrequest.NewWorkEstimator(config.StorageObjectCountTracker.Get,
		flows.GetInterestedWatchCount, flowcontrolrequest.DefaultWorkEstimatorConfig(),
		flows.GetMaxSeats)
	// kube-apiserver lets a request wait in its queue for a quarter of its time.
	return genericfilters.WithPriorityAndFairness(handler, config.LongRunningFunc,
		tracedFlowControl{flows}, estimator, config.RequestTimeout/4)
}

// stored returns the version in which the objects of a request are stored, and whether that is the
// hub version of a built-in kind.
func (c *Chain) stored(
	info *genericapirequest.RequestInfo,
) (version schema.GroupVersion, hub bool) {
	if version = c.Core.StoredVersion(info); !version.Empty() {
		return version, true
	}
	return c.Extensions.StoredVersion(info), false
}

// tracedAuthenticator records the authenticated user in the trace, and lets that user see the trace
// if they may get [trace.Path].
type tracedAuthenticator struct {
	authenticator.Request
	authorizer authorizer.Authorizer
}

func (a tracedAuthenticator) AuthenticateRequest(
	r *http.Request,
) (*authenticator.Response, bool, error) {
	t := tracer.From(r.Context())
	if t == nil {
		return a.Request.AuthenticateRequest(r)
	}
	end := t.Begin("authentication")
	resp, ok, err := a.Request.AuthenticateRequest(r)
	switch {
	case err != nil || !ok:
		// The trace holds nothing else, and the response tells the client as much. It must not say
		// why the credentials were refused.
		end("refused", "no valid credentials")
		t.Show(true)
	default:
		end(resp.User.GetName(), strings.Join(resp.User.GetGroups(), ", "))
		info, _ := genericapirequest.RequestInfoFrom(r.Context())
		t.Identify(resp.User.GetName(), info)
		if t.Asked() {
			decision, _, _ := a.authorizer.Authorize(r.Context(),
				authorizer.AttributesRecord{User: resp.User, Verb: "get", Path: trace.Path})
			t.Show(decision == authorizer.DecisionAllow)
		}
	}
	return resp, ok, err
}

// tracedAuthorizer records in the trace whether a request was allowed, and why.
type tracedAuthorizer struct{ authorizer.Authorizer }

func (a tracedAuthorizer) Authorize(
	ctx context.Context, attributes authorizer.Attributes,
) (authorizer.Decision, string, error) {
	t := tracer.From(ctx)
	if t == nil {
		return a.Authorizer.Authorize(ctx, attributes)
	}
	end := t.Begin("authorization")
	decision, reason, err := a.Authorizer.Authorize(ctx, attributes)
	word := "refused"
	if decision == authorizer.DecisionAllow {
		word = "allowed"
	}
	if err != nil {
		reason = err.Error()
	}
	what := fmt.Sprintf("%s as %s", attributes.GetVerb(), attributes.GetUser().GetName())
	if reason != "" {
		what += ": " + reason
	}
	end(word, what)
	return decision, reason, err
}

// tracedFlowControl records in the trace the priority level of a request and whether the request
// was admitted.
type tracedFlowControl struct{ utilflowcontrol.Interface }

func (f tracedFlowControl) Handle(
	ctx context.Context,
	digest utilflowcontrol.RequestDigest,
	classified func(*flowcontrolv1.FlowSchema, *flowcontrolv1.PriorityLevelConfiguration, string),
	estimate func() flowcontrolrequest.WorkEstimate,
	queued fairqueuing.QueueNoteFn,
	execute func(),
) {
	t := tracer.From(ctx)
	if t == nil {
		f.Interface.Handle(ctx, digest, classified, estimate, queued, execute)
		return
	}
	end := t.Begin("flow control")
	reason, admitted := "", false
	var waited atomic.Bool
	f.Interface.Handle(ctx, digest, func(
		schema *flowcontrolv1.FlowSchema, level *flowcontrolv1.PriorityLevelConfiguration, flow string,
	) {
		reason = fmt.Sprintf("flow schema %s, priority level %s", schema.Name, level.Name)
		classified(schema, level, flow)
	}, estimate, func(inQueue bool) { // another request's goroutine may call this
		if inQueue {
			waited.Store(true)
		}
		queued(inQueue)
	}, func() {
		admitted = true
		if waited.Load() {
			reason += ", after waiting in its queue"
		}
		end("admitted", reason)
		execute()
	})
	if !admitted {
		end("refused", reason)
	}
}
