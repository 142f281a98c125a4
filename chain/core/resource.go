package core

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapi "k8s.io/apiserver/pkg/endpoints"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
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

// StoredVersion returns the version in which the objects of a request are stored. It is empty if
// the server does not serve them.
func (s *Server) StoredVersion(info *genericapirequest.RequestInfo) schema.GroupVersion {
	if info.Subresource != "" && info.Subresource != "status" {
		return schema.GroupVersion{} // it may have another kind
	}
	for _, g := range s.groups {
		if g.PrioritizedVersions[0].Group != info.APIGroup {
			continue
		}
		storage, ok := g.VersionedResourcesStorageMap[info.APIVersion][info.Resource]
		if !ok {
			continue
		}
		kinds, _, err := s.scheme.ObjectKinds(storage.New())
		if err != nil {
			continue
		}
		return storageVersion(s.scheme, external(kinds))
	}
	return schema.GroupVersion{}
}
