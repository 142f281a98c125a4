package chain

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
	"k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"

	"github.com/kinproc/kinproc/chain/internal/stack"
	"github.com/kinproc/kinproc/chain/internal/tracer"
	"github.com/kinproc/kinproc/chain/trace"
)

// filters puts kube-apiserver's filters in front of the first link. It is called while that link is
// being made.
func (c *Chain) filters(handler http.Handler, config *genericapiserver.Config) http.Handler {
	first := bufferLists(traceLink(func() Link { return c.Aggregator }, c.Core, handler))
	traced := *config
	traced.Authentication.Authenticator = tracedAuthenticator{
		config.Authentication.Authenticator, config.Authorization.Authorizer,
	}
	traced.Authorization.Authorizer = tracedAuthorizer{config.Authorization.Authorizer}
	if config.FlowControl != nil {
		traced.FlowControl = tracedFlowControl{config.FlowControl}
	}
	first = tracer.WithSpans(first, c.stored)
	first = answerPanics(c.checkBodies(first, config.MaxRequestBodyBytes), config.Serializer)
	return refuseUnread(c.followers.WithTrace(
		genericapiserver.DefaultBuildHandlerChain(first, &traced)))
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
	// The filter for timeouts starts a goroutine for each request but watches, and authentication
	// is the first of the filters that runs on it.
	info, ok := genericapirequest.RequestInfoFrom(r.Context())
	if ok && info.Verb != "watch" {
		stack.Grow()
	}
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
		t.ShowIf(func() bool { return true })
	default:
		end(resp.User.GetName(), strings.Join(resp.User.GetGroups(), ", "))
		t.Identify(resp.User.GetName(), info)
		t.ShowIf(func() bool {
			decision, _, _ := a.authorizer.Authorize(r.Context(),
				authorizer.AttributesRecord{User: resp.User, Verb: "get", Path: trace.Path})
			return decision == authorizer.DecisionAllow
		})
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
