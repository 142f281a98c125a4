package requests

import (
	"context"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/apimachinery/pkg/util/sets"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericfilters "k8s.io/apiserver/pkg/server/filters"

	"github.com/kinproc/kinproc/chain/fault"
	"github.com/kinproc/kinproc/chain/history"
	"github.com/kinproc/kinproc/chain/trace"
	"github.com/kinproc/kinproc/server/internal/requests/paths"
)

// Class is what sort of request a request is.
type Class int

const (
	// Read changes nothing.
	Read Class = iota
	// Write may change stored objects.
	Write
	// Review is posted, but stores nothing: it asks who somebody is, or what somebody may do.
	Review
	// LongRunning may last. The filters do not time such a request out or count it against the
	// limit of concurrent requests, and neither a stop nor a reset waits for it.
	LongRunning
	// Snapshot transfers the whole state. It is long-running too.
	Snapshot
)

// Facts are what the head of a request says about it. They are found once for each request.
type Facts struct {
	Class Class
	// Proxied is true if an extension API server answers.
	Proxied bool
	// Info is nil if the path makes no sense.
	Info *genericapirequest.RequestInfo
}

type factsKey struct{}

// Of returns the facts of the request that ctx belongs to, or nil.
func Of(ctx context.Context) *Facts {
	f, _ := ctx.Value(factsKey{}).(*Facts)
	return f
}

// IsLongRunning is a LongRunningRequestCheck.
func IsLongRunning(r *http.Request, _ *genericapirequest.RequestInfo) bool {
	f := Of(r.Context())
	return f != nil && f.Class >= LongRunning
}

// Infos is a RequestInfoResolver that knows what has been found already.
type Infos struct{}

// NewRequestInfo implements genericapirequest.RequestInfoResolver.
func (Infos) NewRequestInfo(r *http.Request) (*genericapirequest.RequestInfo, error) {
	if f := Of(r.Context()); f != nil && f.Info != nil {
		return f.Info, nil
	}
	return Resolve(r)
}

// Resolve returns what a request is for. The history of objects is for those who may read them, so
// a request for it is one for the objects, and it passes the same authorizers and limits.
func Resolve(r *http.Request) (*genericapirequest.RequestInfo, error) {
	path, ok := strings.CutPrefix(r.URL.Path, history.Path)
	if !ok || !strings.HasPrefix(path, "/") {
		return resolver.NewRequestInfo(r)
	}
	objects, address := *r, *r.URL
	objects.URL, address.Path, address.RawPath = &address, path, ""
	info, err := resolver.NewRequestInfo(&objects)
	if err == nil && info.Verb == "get" && info.Name != "" && r.URL.Query().Get("watch") == "true" {
		info.Verb = "watch"
	}
	return info, err
}

// resolver has kube-apiserver's prefixes.
var resolver = &genericapirequest.RequestInfoFactory{
	APIPrefixes:          sets.NewString("api", "apis"),
	GrouplessAPIPrefixes: sets.NewString("api"),
}

// lasts reports which requests kube-apiserver takes for long-running.
var lasts = genericfilters.BasicLongRunningRequestCheck(
	sets.NewString("watch", "proxy"), sets.NewString("attach", "exec", "proxy", "log", "portforward"))

// classify finds the facts of a request. The function proxied reports whether an extension API
// server answers the requests for a path.
//
// Besides kube-apiserver's long-running requests, streams of traces are, and the protocol upgrades
// at subresources of extension API servers, which have websockets under any name. An Upgrade header
// elsewhere has no effect.
func classify(r *http.Request, proxied func(path string) bool) Facts {
	path := r.URL.Path
	info, _ := Resolve(r) // an error is found again by the filter that reports it
	f := Facts{Info: info, Proxied: proxied(path)}
	switch {
	case path == paths.Snapshot || path == paths.Reset:
		f.Class = Snapshot
	case path == trace.FollowPath,
		info != nil && (lasts(r, info) || f.Proxied && info.Subresource != "" && upgrades(r)):
		f.Class = LongRunning
	case r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions:
		f.Class = Read
	case strings.HasPrefix(path, "/apis/authorization.k8s.io/"),
		strings.HasPrefix(path, "/apis/authentication.k8s.io/"),
		path == fault.Path || strings.HasPrefix(path, fault.Path+"/"):
		f.Class = Review
	default:
		f.Class = Write
	}
	return f
}

// upgrades reports whether a request may change to another protocol. A websocket begins with GET,
// and SPDY with POST.
func upgrades(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodPost) &&
		httpstream.IsUpgradeRequest(r)
}

// streams reports whether the response may be large, or last.
func (f *Facts) streams() bool {
	return f.Class >= LongRunning || f.Class == Read && (f.Info == nil || f.Info.Verb == "list")
}
