package server

import (
	"net/http"

	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/apimachinery/pkg/util/sets"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericfilters "k8s.io/apiserver/pkg/server/filters"

	"github.com/kinproc/kinproc/chain/trace"
)

// longRunning reports which requests are long-running: the filters do not time them out or count
// them against the limit of concurrent requests, and Stop does not wait for them. These are
// kube-apiserver's long-running requests, snapshots, streams of traces, and the protocol upgrades at
// subresources of extension API servers, which have websockets under any name. An Upgrade header
// elsewhere has no effect.
func longRunning(elsewhere func(path string) bool) genericapirequest.LongRunningRequestCheck {
	basic := genericfilters.BasicLongRunningRequestCheck(
		sets.NewString("watch", "proxy"), sets.NewString("attach", "exec", "proxy", "log", "portforward"))
	return func(r *http.Request, info *genericapirequest.RequestInfo) bool {
		return basic(r, info) || isSnapshotPath(r.URL.Path) || r.URL.Path == trace.FollowPath ||
			info.Subresource != "" && upgrades(r) && elsewhere(r.URL.Path)
	}
}

// upgrades reports whether a request may change to another protocol. A websocket begins with GET,
// and SPDY with POST.
func upgrades(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodPost) &&
		httpstream.IsUpgradeRequest(r)
}
