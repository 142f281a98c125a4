package core

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	restful "github.com/emicklei/go-restful/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
)

// onDemand installs the routes of a resource when the first request for it comes. Installing the
// routes of all built-in kinds takes some 40 ms of CPU, most of it to compile a regular expression
// for each path, and most control planes use few of them.
type onDemand struct {
	server   *genericapiserver.GenericAPIServer
	versions map[string]*groupVersion // by root path, such as "/apis/apps/v1"
}

// groupVersion is a group version whose routes may not be installed yet.
type groupVersion struct {
	resources []string // with subresources, sorted
	// install installs the routes of all resources, as discovery and OpenAPI need them.
	install func() error
	// handlers serve one resource each, with its subresources.
	handlers map[string]func() (http.Handler, error)
}

func newOnDemand(server *genericapiserver.GenericAPIServer) *onDemand {
	return &onDemand{server: server, versions: map[string]*groupVersion{}}
}

// add adds a group version with its root path. Install installs the routes of some storage in a
// container. add must not be called once requests are served.
func (d *onDemand) add(
	root string, storage map[string]rest.Storage,
	install func(map[string]rest.Storage, *restful.Container) error,
) {
	v := &groupVersion{
		resources: slices.Sorted(maps.Keys(storage)),
		handlers:  map[string]func() (http.Handler, error){},
	}
	v.install = sync.OnceValue(func() error {
		return install(storage, d.server.Handler.GoRestfulContainer)
	})
	byResource := map[string]map[string]rest.Storage{}
	for name, s := range storage {
		resource, _, _ := strings.Cut(name, "/")
		if byResource[resource] == nil {
			byResource[resource] = map[string]rest.Storage{}
		}
		byResource[resource][name] = s
	}
	for resource, storage := range byResource {
		v.handlers[resource] = sync.OnceValues(func() (http.Handler, error) {
			alone := genericapiserver.NewAPIServerHandler(resource, d.server.Serializer,
				func(h http.Handler) http.Handler { return h }, nil)
			alone.GoRestfulContainer.Router(&router{})
			return http.HandlerFunc(alone.GoRestfulContainer.Dispatch),
				install(storage, alone.GoRestfulContainer)
		})
	}
	d.versions[root] = v
}

// handler returns the handler of a request for a resource of a group version. Without a resource,
// it installs the routes of the group version if the path belongs to one, and returns nil: the
// server itself handles the request.
func (d *onDemand) handler(r *http.Request) (http.Handler, error) {
	v, ok := d.versions[rootOf(r.URL.Path)]
	if !ok {
		return nil, nil
	}
	if info, ok := request.RequestInfoFrom(r.Context()); ok && info.IsResourceRequest {
		if handler, ok := v.handlers[info.Resource]; ok {
			return handler()
		}
	}
	return nil, v.install()
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
		handler, err := t.onDemand.handler(r)
		if err != nil {
			refuse(w, r, t.GenericAPIServer, err)
			return
		}
		if handler == nil {
			handler = next
		}
		handler.ServeHTTP(w, r)
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
