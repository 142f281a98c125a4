package core

import (
	"net/http"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericapiserver "k8s.io/apiserver/pkg/server"
)

// onDemand installs the routes of a group version when the first request for them comes. Installing
// the routes of all built-in kinds takes some 40 ms of CPU, most of it to compile a regular
// expression for each path, and most control planes use few of them.
type onDemand struct {
	server   *genericapiserver.GenericAPIServer
	versions map[string]*groupVersion // by root path, such as "/apis/apps/v1"
}

// groupVersion is a group version whose routes may not be installed yet.
type groupVersion struct {
	resources []string // with subresources, sorted
	install   func() error
}

func newOnDemand(server *genericapiserver.GenericAPIServer) *onDemand {
	return &onDemand{server: server, versions: map[string]*groupVersion{}}
}

// add adds a group version with its root path. It must not be called once requests are served.
func (d *onDemand) add(root string, resources []string, install func() error) {
	d.versions[root] = &groupVersion{resources: resources, install: sync.OnceValue(install)}
}

// installFor installs the routes of the group version that a path belongs to, if there is one.
func (d *onDemand) installFor(path string) error {
	if v, ok := d.versions[rootOf(path)]; ok {
		return v.install()
	}
	return nil
}

// installAll installs the routes of all group versions.
func (d *onDemand) installAll() error {
	for _, v := range d.versions {
		if err := v.install(); err != nil {
			return err
		}
	}
	return nil
}

// rootOf returns the root path of the group version that a path belongs to: its first two segments
// below /api, and its first three segments below /apis.
func rootOf(path string) string {
	segments := 3
	if strings.HasPrefix(path, genericapiserver.DefaultLegacyAPIPrefix+"/") {
		segments = 2
	}
	for i := 1; i < len(path); i++ {
		if path[i] != '/' {
			continue
		}
		if segments--; segments == 0 {
			return path[:i]
		}
	}
	return path
}

// target is the server as the delegation target of the link before it.
type target struct {
	*genericapiserver.GenericAPIServer
	onDemand *onDemand
}

// UnprotectedHandler implements genericapiserver.DelegationTarget.
func (t target) UnprotectedHandler() http.Handler {
	next := t.GenericAPIServer.UnprotectedHandler()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := t.onDemand.installFor(r.URL.Path); err != nil {
			refuse(w, r, t.GenericAPIServer, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// ListedPaths implements genericapiserver.DelegationTarget. It lists the group versions whose
// routes are not installed yet, too.
func (t target) ListedPaths() []string {
	paths := t.GenericAPIServer.ListedPaths()
	for root := range t.onDemand.versions {
		paths = append(paths, root)
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// discoveryManager installs the routes of all group versions before it serves the document that
// lists their resources.
type discoveryManager struct {
	aggregated.ResourceManager
	onDemand *onDemand
}

func (m discoveryManager) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := m.onDemand.installAll(); err != nil {
		refuse(w, r, m.onDemand.server, err)
		return
	}
	m.ResourceManager.ServeHTTP(w, r)
}

func refuse(
	w http.ResponseWriter, r *http.Request, s *genericapiserver.GenericAPIServer, err error,
) {
	responsewriters.ErrorNegotiated(apierrors.NewInternalError(err), s.Serializer,
		schema.GroupVersion{}, w, r)
}
