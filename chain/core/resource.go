package core

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapi "k8s.io/apiserver/pkg/endpoints"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Resource returns the resource that serves a kind, and whether its objects are in namespaces. Ok
// is false if the server does not serve the kind in that version. Discovery tells the same, but the
// server has to install the routes of a whole group version for it.
func (s *Server) Resource(kind schema.GroupVersionKind) (name string, namespaced, ok bool) {
	for _, g := range s.groups {
		if g.PrioritizedVersions[0].Group != kind.Group {
			continue
		}
		for name, storage := range g.VersionedResourcesStorageMap[kind.Version] {
			scoper, ok := storage.(rest.Scoper)
			if !ok || strings.Contains(name, "/") {
				continue
			}
			gvk, err := genericapi.GetResourceKind(kind.GroupVersion(), storage, s.scheme)
			if err == nil && gvk == kind {
				return name, scoper.NamespaceScoped(), true
			}
		}
	}
	return "", false, false
}
