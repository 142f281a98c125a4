package extensions

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kinproc/kinproc/chain/internal/routes"
)

// Name implements the interface link of package chain.
func (s *Server) Name() string { return "extensions" }

// Delegated implements the interface link of package chain.
func (s *Server) Delegated(info *genericapirequest.RequestInfo) (reason string) {
	name := info.Resource + "." + info.APIGroup
	crd, err := s.Informers.Apiextensions().V1().CustomResourceDefinitions().Lister().Get(name)
	if err != nil {
		return fmt.Sprintf("no CustomResourceDefinition %s", name)
	}
	return fmt.Sprintf("CustomResourceDefinition %s does not serve version %s",
		crd.Name, info.APIVersion)
}

// Ended implements the interface link of package chain.
func (s *Server) Ended(info *genericapirequest.RequestInfo) (decision, reason string) {
	if what := routes.Missing(s.GenericAPIServer, info); what != "" {
		return "404", what
	}
	return "served", ""
}

// StoredVersion returns the version in which the custom resources of a request are stored. It is
// empty if the server does not serve them.
func (s *Server) StoredVersion(info *genericapirequest.RequestInfo) schema.GroupVersion {
	crd, err := s.Informers.Apiextensions().V1().CustomResourceDefinitions().Lister().Get(
		info.Resource + "." + info.APIGroup)
	if err != nil || info.Subresource == "scale" {
		return schema.GroupVersion{}
	}
	for _, v := range crd.Spec.Versions {
		if v.Storage {
			return schema.GroupVersion{Group: crd.Spec.Group, Version: v.Name}
		}
	}
	return schema.GroupVersion{}
}
