package servertest

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kinproc/kinproc/chain/history"
)

// History returns the versions of an object of c that etcd still keeps, in order, the newest
// hundred at most: when they were written, by whom, and what changed. The last one may be the
// deletion of the object. Without a name, it returns the versions of all objects of the resource in
// the namespace, which is empty for all namespaces and for cluster-scoped objects. The data of
// Secrets is left out. c must be a kinproc control plane.
func History(
	t TB, c API, resource schema.GroupVersionResource, namespace, name string,
) []history.Version {
	t.Helper()
	ctx, cancel := helperContext(t)
	defer cancel()
	path := history.PathOf(resource, namespace, name)
	found, err := history.Get(ctx, c.RESTConfig(), path, history.Options{})
	if err != nil {
		t.Fatalf("servertest: history: %v", err)
	}
	return found.Versions
}
