package chain

import (
	"net/http"

	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/notfoundhandler"

	"github.com/kinproc/kinproc/chain/internal/tracer"
)

// Link is a server of the chain. It names itself and explains, for the trace of a request, what it did
// with the request. The link calls it only with a request for a group version.
type Link interface {
	Name() string
	// Target is what the link in front delegates to.
	Target() genericapiserver.DelegationTarget
	// Delegated says why the link passed the request on to the next one.
	Delegated(info *genericapirequest.RequestInfo) (reason string)
	// Ended says what the link did with a request that it did not pass on.
	Ended(info *genericapirequest.RequestInfo) (decision, reason string)
}

// notFound is the end of the chain.
type notFound struct {
	genericapiserver.DelegationTarget
}

func newNotFound(generic *genericapiserver.Config) notFound {
	handler := notfoundhandler.New(generic.Serializer, genericapifilters.NoMuxAndDiscoveryIncompleteKey)
	return notFound{genericapiserver.NewEmptyDelegateWithCustomHandler(handler)}
}

func (n notFound) Name() string                                             { return "not found" }
func (n notFound) Target() genericapiserver.DelegationTarget                { return n.DelegationTarget }
func (n notFound) Delegated(*genericapirequest.RequestInfo) (reason string) { return "" }
func (n notFound) Ended(*genericapirequest.RequestInfo) (decision, reason string) {
	return "404", "nobody serves the path"
}

// tracedTarget is a link whose handler notes in the trace that a request has come to the link.
type tracedTarget struct {
	genericapiserver.DelegationTarget
	handler http.Handler
}

// traced wraps a link that delegates to next, or to nobody if next is nil.
func traced(link, next Link) genericapiserver.DelegationTarget {
	target := link.Target()
	return tracedTarget{target, traceLink(func() Link { return link }, next, target.UnprotectedHandler())}
}

func (t tracedTarget) UnprotectedHandler() http.Handler { return t.handler }

// traceLink notes when a request comes to a link and whether the request went on to the next link.
func traceLink(linkOf func() Link, next Link, handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t := tracer.From(r.Context())
		if t == nil {
			handler.ServeHTTP(w, r)
			return
		}
		link := linkOf()
		end := t.Begin(link.Name())
		end("served", "") // holds for watches, which are shown before they end
		handler.ServeHTTP(w, r)
		info, ok := genericapirequest.RequestInfoFrom(r.Context())
		versioned := ok && info.APIVersion != ""
		switch {
		case next == nil:
			end(link.Ended(info))
		case t.Passed(next.Name()) && versioned:
			end("delegated to "+next.Name(), link.Delegated(info))
		case t.Passed(next.Name()):
			end("delegated to "+next.Name(), "the path is none of its own")
		case versioned:
			end(link.Ended(info))
		default:
			end("served", "")
		}
	})
}
