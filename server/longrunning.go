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
// kube-apiserver's long-running requests, snapshots, streams of traces, and all protocol upgrades at
// a subresource, because extension API servers have websockets at subresources with other names. An
// Upgrade header on any other request has no effect.
func longRunning() genericapirequest.LongRunningRequestCheck {
	basic := genericfilters.BasicLongRunningRequestCheck(
		sets.NewString("watch", "proxy"), sets.NewString("attach", "exec", "proxy", "log", "portforward"))
	return func(r *http.Request, info *genericapirequest.RequestInfo) bool {
		return basic(r, info) || isSnapshotPath(r.URL.Path) ||
			r.URL.Path == trace.FollowPath ||
			info.IsResourceRequest && info.Subresource != "" && httpstream.IsUpgradeRequest(r)
	}
}
