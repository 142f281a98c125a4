// Package routes finds out whether an API server has a route for a request.
package routes

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/emicklei/go-restful/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
)

// Missing describes the resource or subresource that a request asks for if the server has the group
// version, but no route to the resource. Otherwise it returns "". A server does not delegate
// requests for its own group versions.
func Missing(s *genericapiserver.GenericAPIServer, info *genericapirequest.RequestInfo) string {
	root := path.Join("/", info.APIPrefix, info.APIGroup, info.APIVersion)
	services := s.Handler.GoRestfulContainer.RegisteredWebServices()
	i := slices.IndexFunc(services, func(ws *restful.WebService) bool { return ws.RootPath() == root })
	if i < 0 || !info.IsResourceRequest {
		return ""
	}
	what := fmt.Sprintf("resource %q", info.Resource)
	for _, route := range services[i].Routes() {
		resource, subresource := split(strings.TrimPrefix(route.Path, root))
		if resource != info.Resource {
			continue
		}
		if subresource == info.Subresource {
			return ""
		}
		what = fmt.Sprintf("subresource %q of %s", info.Subresource, info.Resource)
	}
	return fmt.Sprintf("%s has no %s",
		schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}, what)
}

// split returns the resource and subresource that a route serves. The route's path is relative to
// the group version, such as /namespaces/{namespace}/pods/{name}/log.
func split(route string) (resource, subresource string) {
	route = strings.TrimPrefix(strings.TrimPrefix(route, "/watch"), "/namespaces/{namespace}")
	parts := append(strings.Split(strings.Trim(route, "/"), "/"), "", "")
	return parts[0], parts[2]
}
