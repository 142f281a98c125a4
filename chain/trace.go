package chain

import (
	"context"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/emicklei/go-restful/v3"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
	"k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistrationv1helper "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"

	"github.com/kinproc/kinproc/chain/trace"
)

// The names of the links, as traces show them.
const (
	aggregatorName = "aggregator"
	coreName       = "core"
	extensionsName = "extensions"
	notFoundName   = "not found"
)

// tracedTarget is a server of the chain that notes in a trace that a request has come to it.
type tracedTarget struct {
	genericapiserver.DelegationTarget
	handler http.Handler
}

func (t tracedTarget) UnprotectedHandler() http.Handler { return t.handler }

func (c *Chain) traced(links []Link, i int, target genericapiserver.DelegationTarget) genericapiserver.DelegationTarget {
	next := ""
	if i+1 < len(links) {
		next = links[i+1].Name
	}
	return tracedTarget{target, c.traceLink(links[i].Name, next, target.UnprotectedHandler())}
}

// traceLink notes when a request comes to a server and whether it went on to the next one.
func (c *Chain) traceLink(name, next string, handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t := trace.From(r.Context())
		if t == nil {
			handler.ServeHTTP(w, r)
			return
		}
		end := t.Begin(name)
		end("served", "") // holds for watches, which are shown before they end
		handler.ServeHTTP(w, r)
		switch {
		case next == "":
			end("404", "nobody serves the path")
		case t.Passed(next):
			end("delegated to "+next, c.reason(name, r))
		default:
			end(c.ended(name, r))
		}
	})
}

// reason says why the server of the given name passed the request on.
func (c *Chain) reason(name string, r *http.Request) string {
	info, ok := genericapirequest.RequestInfoFrom(r.Context())
	if !ok || info.APIVersion == "" {
		return "the path is none of its own"
	}
	gv := schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}
	switch name {
	case aggregatorName:
		service, err := c.Aggregator.APIRegistrationInformers.Apiregistration().V1().APIServices().Lister().Get(gv.Version + "." + gv.Group)
		if err != nil {
			return fmt.Sprintf("no APIService %s.%s", gv.Version, gv.Group)
		}
		return fmt.Sprintf("APIService %s is local", service.Name)
	case coreName:
		return fmt.Sprintf("%s is no built-in group version", gv)
	default:
		name := info.Resource + "." + info.APIGroup
		crd, err := c.Extensions.Informers.Apiextensions().V1().CustomResourceDefinitions().Lister().Get(name)
		if err != nil {
			return fmt.Sprintf("no CustomResourceDefinition %s", name)
		}
		return fmt.Sprintf("CustomResourceDefinition %s does not serve version %s", crd.Name, gv.Version)
	}
}

// ended is the decision of the server of the given name on a request that it did not pass on.
func (c *Chain) ended(name string, r *http.Request) (decision, reason string) {
	info, ok := genericapirequest.RequestInfoFrom(r.Context())
	if !ok || info.APIVersion == "" {
		return "served", ""
	}
	server := c.Extensions.GenericAPIServer
	switch name {
	case aggregatorName:
		service, err := c.Aggregator.APIRegistrationInformers.Apiregistration().V1().APIServices().Lister().Get(info.APIVersion + "." + info.APIGroup)
		if err == nil && service.Spec.Service != nil {
			return proxied(service)
		}
		server = c.Aggregator.GenericAPIServer
	case coreName:
		server = c.Core.GenericAPIServer
	}
	if what := missing(server, info); what != "" {
		return "404", what
	}
	return "served", ""
}

// proxied is the aggregator's decision on a request for an APIService that leads to another server.
func proxied(s *apiregistrationv1.APIService) (decision, reason string) {
	available := apiregistrationv1helper.GetAPIServiceConditionByType(s, apiregistrationv1.Available)
	switch {
	case available == nil:
		return "503", fmt.Sprintf("APIService %s was not yet looked at", s.Name)
	case available.Status != apiregistrationv1.ConditionTrue:
		return "503", fmt.Sprintf("APIService %s is not available: %s", s.Name, available.Reason)
	}
	return fmt.Sprintf("proxied to service %s/%s", s.Spec.Service.Namespace, s.Spec.Service.Name), "APIService " + s.Name
}

// missing says what a request wants of a group version that the server has, but without it. A server passes nothing on of those.
func missing(s *genericapiserver.GenericAPIServer, info *genericapirequest.RequestInfo) string {
	root := path.Join("/", info.APIPrefix, info.APIGroup, info.APIVersion)
	services := s.Handler.GoRestfulContainer.RegisteredWebServices()
	i := slices.IndexFunc(services, func(ws *restful.WebService) bool { return ws.RootPath() == root })
	if i < 0 || !info.IsResourceRequest {
		return ""
	}
	what := fmt.Sprintf("resource %q", info.Resource)
	for _, route := range services[i].Routes() {
		resource, subresource := served(strings.TrimPrefix(route.Path, root))
		if resource != info.Resource {
			continue
		}
		if subresource == info.Subresource {
			return ""
		}
		what = fmt.Sprintf("subresource %q of %s", info.Subresource, info.Resource)
	}
	return fmt.Sprintf("%s has no %s", schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}, what)
}

// served is what a route serves, by its path below the group version, such as /namespaces/{namespace}/pods/{name}/log.
func served(route string) (resource, subresource string) {
	route = strings.TrimPrefix(strings.TrimPrefix(route, "/watch"), "/namespaces/{namespace}")
	parts := append(strings.Split(strings.Trim(route, "/"), "/"), "", "")
	return parts[0], parts[2]
}

// tracedAuthenticator notes who a request was taken for, and lets that user see the trace who may get [trace.Path].
type tracedAuthenticator struct {
	authenticator.Request
	authorizer authorizer.Authorizer
}

func (a tracedAuthenticator) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	t := trace.From(r.Context())
	if t == nil {
		return a.Request.AuthenticateRequest(r)
	}
	end := t.Begin("authentication")
	resp, ok, err := a.Request.AuthenticateRequest(r)
	switch {
	case err != nil || !ok:
		// There is nothing else in this trace, and whoever gets it knows as much by the answer. He is not told why.
		end("refused", "no valid credentials")
		t.ShowIf(func() bool { return true })
	default:
		end(resp.User.GetName(), strings.Join(resp.User.GetGroups(), ", "))
		t.ShowIf(func() bool {
			decision, _, _ := a.authorizer.Authorize(r.Context(), authorizer.AttributesRecord{User: resp.User, Verb: "get", Path: trace.Path})
			return decision == authorizer.DecisionAllow
		})
	}
	return resp, ok, err
}

// tracedAuthorizer notes whether a request was allowed, and why.
type tracedAuthorizer struct{ authorizer.Authorizer }

func (a tracedAuthorizer) Authorize(ctx context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	t := trace.From(ctx)
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

// tracedFlowControl notes which priority level a request was given and whether it was let through.
type tracedFlowControl struct{ utilflowcontrol.Interface }

func (f tracedFlowControl) Handle(
	ctx context.Context,
	digest utilflowcontrol.RequestDigest,
	classified func(*flowcontrolv1.FlowSchema, *flowcontrolv1.PriorityLevelConfiguration, string),
	estimate func() flowcontrolrequest.WorkEstimate,
	queued fairqueuing.QueueNoteFn,
	execute func(),
) {
	t := trace.From(ctx)
	if t == nil {
		f.Interface.Handle(ctx, digest, classified, estimate, queued, execute)
		return
	}
	end := t.Begin("flow control")
	reason, admitted := "", false
	f.Interface.Handle(ctx, digest, func(schema *flowcontrolv1.FlowSchema, level *flowcontrolv1.PriorityLevelConfiguration, flow string) {
		reason = fmt.Sprintf("flow schema %s, priority level %s", schema.Name, level.Name)
		classified(schema, level, flow)
	}, estimate, queued, func() {
		admitted = true
		end("admitted", reason)
		execute()
	})
	if !admitted {
		end("refused", reason)
	}
}
