package server

import (
	"net/http"

	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/apimachinery/pkg/util/sets"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericfilters "k8s.io/apiserver/pkg/server/filters"
)

// longRunning tells the filters which requests may last as long as they like: no timeout ends them, none counts against the limit of
// requests at a time, and a stop does not wait for them. They are kube-apiserver's, and those that leave HTTP at a subresource, for
// extension API servers have websockets under names of their own. An upgrade of anything else is a claim without effect.
func longRunning() genericapirequest.LongRunningRequestCheck {
	basic := genericfilters.BasicLongRunningRequestCheck(
		sets.NewString("watch", "proxy"), sets.NewString("attach", "exec", "proxy", "log", "portforward"))
	return func(r *http.Request, info *genericapirequest.RequestInfo) bool {
		return basic(r, info) || info.IsResourceRequest && info.Subresource != "" && httpstream.IsUpgradeRequest(r)
	}
}
