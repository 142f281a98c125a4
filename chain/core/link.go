package core

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/kinproc/kinproc/chain/internal/routes"
)

// Name implements the interface link of package chain.
func (s *Server) Name() string { return "core" }

// Target implements the interface link of package chain.
func (s *Server) Target() genericapiserver.DelegationTarget {
	return target{s.GenericAPIServer, s.onDemand}
}

// Delegated implements the interface link of package chain.
func (s *Server) Delegated(info *genericapirequest.RequestInfo) (reason string) {
	gv := schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}
	return fmt.Sprintf("%s is not a built-in group version", gv)
}

// Ended implements the interface link of package chain.
func (s *Server) Ended(info *genericapirequest.RequestInfo) (decision, reason string) {
	if what := routes.Missing(s.GenericAPIServer, info); what != "" {
		return "404", what
	}
	return "served", ""
}
