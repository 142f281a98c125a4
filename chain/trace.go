package chain

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"

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
		decision, reason := "served", ""
		switch {
		case next == "":
			decision, reason = "404", "nobody serves the path"
		case t.Passed(next):
			decision, reason = "delegated to "+next, c.reason(name, r)
		case name == aggregatorName:
			decision, reason = c.proxied(r)
		}
		end(decision, reason)
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
		for _, own := range c.Core.GroupVersions {
			if own == gv {
				return fmt.Sprintf("%s has no resource %q", gv, info.Resource)
			}
		}
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

// proxied is the aggregator's decision on a request that it did not delegate.
func (c *Chain) proxied(r *http.Request) (decision, reason string) {
	info, ok := genericapirequest.RequestInfoFrom(r.Context())
	if !ok || info.APIVersion == "" {
		return "served", ""
	}
	service, err := c.Aggregator.APIRegistrationInformers.Apiregistration().V1().APIServices().Lister().Get(info.APIVersion + "." + info.APIGroup)
	if err != nil || service.Spec.Service == nil {
		return "served", ""
	}
	return fmt.Sprintf("proxied to service %s/%s", service.Spec.Service.Namespace, service.Spec.Service.Name), "APIService " + service.Name
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
	case err != nil:
		end("refused", err.Error())
	case !ok:
		end("refused", "no credentials that an authenticator knows")
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
