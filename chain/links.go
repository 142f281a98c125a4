package chain

import (
	"net/http"

	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/notfoundhandler"

	"github.com/kinproc/kinproc/chain/internal/tracer"
)

// link is a server of the chain. For the trace of a request, it explains what it did with the
// request. Delegated and Ended are called only with requests for a group version, except for Ended
// of the last link.
type link interface {
	Name() string
	// Target returns the server as the delegation target of the link before it.
	Target() genericapiserver.DelegationTarget
	// Delegated returns why the link passed the request on to the next one.
	Delegated(info *genericapirequest.RequestInfo) (reason string)
	// Ended returns what the link did with a request that it did not pass on.
	Ended(info *genericapirequest.RequestInfo) (decision, reason string)
}

// notFound is the last link of the chain. It answers 404.
type notFound struct {
	genericapiserver.DelegationTarget
}

func newNotFound(generic *genericapiserver.Config) notFound {
	handler := notfoundhandler.New(generic.Serializer,
		genericapifilters.NoMuxAndDiscoveryIncompleteKey)
	return notFound{genericapiserver.NewEmptyDelegateWithCustomHandler(handler)}
}

func (n notFound) Name() string { return "not found" }
func (n notFound) Target() genericapiserver.DelegationTarget {
	return n.DelegationTarget
}
func (n notFound) Delegated(*genericapirequest.RequestInfo) (reason string) { return "" }
func (n notFound) Ended(*genericapirequest.RequestInfo) (decision, reason string) {
	return "404", "no server serves the path"
}

// tracedTarget is a delegation target that records in the trace when a request reaches its link.
type tracedTarget struct {
	genericapiserver.DelegationTarget
	handler http.Handler
}

// traced returns the delegation target of a link that delegates to next. next is nil for the last
// link.
func traced(l, next link) genericapiserver.DelegationTarget {
	target := l.Target()
	return tracedTarget{target,
		traceLink(func() link { return l }, next, target.UnprotectedHandler())}
}

func (t tracedTarget) UnprotectedHandler() http.Handler { return t.handler }

// traceLink records when a request reaches a link and whether it went on to the next link.
func traceLink(linkOf func() link, next link, handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t := tracer.From(r.Context())
		if t == nil {
			handler.ServeHTTP(w, r)
			return
		}
		l := linkOf()
		end := t.Begin(l.Name())
		end("served", "") // for watches, which are shown before they end
		handler.ServeHTTP(w, r)
		info, ok := genericapirequest.RequestInfoFrom(r.Context())
		versioned := ok && info.APIVersion != ""
		switch {
		case next == nil:
			end(l.Ended(info))
		case t.Passed(next.Name()) && versioned:
			end("delegated to "+next.Name(), l.Delegated(info))
		case t.Passed(next.Name()):
			end("delegated to "+next.Name(), "the server does not serve the path")
		case versioned:
			end(l.Ended(info))
		default:
			end("served", "")
		}
	})
}
