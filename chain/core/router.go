package core

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	restful "github.com/emicklei/go-restful/v3"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// router selects the routes of one resource as restful.CurlyRouter does, and remembers which route
// that is for requests of the same shape. CurlyRouter compares a path with all routes and copies
// those that match.
type router struct {
	restful.CurlyRouter
	known  sync.Map // shape → selection
	shapes atomic.Int32
}

// shape is all of a request for a resource that decides about its route.
type shape struct {
	method, verb, subresource string
	namespaced, named         bool
	accept, contentType       string
}

// shapeOf returns the shape of a request. It is false for other paths than
// [/namespaces/NAMESPACE]/RESOURCE[/NAME[/SUBRESOURCE]] below that of the group version. Two such
// paths with the same shape differ only in the names.
func shapeOf(r *http.Request) (s shape, ok bool) {
	info, ok := request.RequestInfoFrom(r.Context())
	if !ok || len(r.Header["Accept"]) > 1 || len(r.Header["Content-Type"]) > 1 {
		return s, false
	}
	s = shape{
		method: r.Method, verb: info.Verb, subresource: info.Subresource,
		namespaced: info.Namespace != "" && info.Resource != "namespaces", named: info.Name != "",
		accept: r.Header.Get("Accept"), contentType: r.Header.Get("Content-Type"),
	}
	segments := 3 // api, the version and the resource
	if info.APIGroup != "" {
		segments++
	}
	if s.namespaced {
		segments += 2
	}
	if s.named {
		segments++
	}
	if s.subresource != "" {
		segments++
	}
	return s, len(s.accept)+len(s.contentType) <= maxHeaders &&
		strings.Count(r.URL.Path, "/") == segments && !strings.HasSuffix(r.URL.Path, "/")
}

type selection struct {
	service *restful.WebService
	route   *restful.Route
}

// maxShapes and maxHeaders, the length of headers in a shape, limit what is remembered, because
// clients choose their headers.
const maxShapes, maxHeaders = 100, 256

// SelectRoute implements restful.RouteSelector.
func (c *router) SelectRoute(
	services []*restful.WebService, r *http.Request,
) (*restful.WebService, *restful.Route, error) {
	key, ok := shapeOf(r)
	if !ok {
		return c.CurlyRouter.SelectRoute(services, r)
	}
	if s, ok := c.known.Load(key); ok {
		return s.(selection).service, s.(selection).route, nil
	}
	service, route, err := c.CurlyRouter.SelectRoute(services, r)
	if err == nil && c.shapes.Load() < maxShapes {
		if _, known := c.known.LoadOrStore(key, selection{service, route}); !known {
			c.shapes.Add(1)
		}
	}
	return service, route, err
}
