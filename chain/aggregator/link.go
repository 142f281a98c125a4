package aggregator

import (
	"fmt"

	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistrationv1helper "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"

	"github.com/kinproc/kinproc/chain/internal/routes"
)

// Name implements the interface link of package chain.
func (s *Server) Name() string { return "aggregator" }

// Target implements the interface link of package chain.
func (s *Server) Target() genericapiserver.DelegationTarget { return s.GenericAPIServer }

// Delegated implements the interface link of package chain.
func (s *Server) Delegated(info *genericapirequest.RequestInfo) (reason string) {
	name := serviceName(info)
	if s.service(name) == nil {
		return fmt.Sprintf("no APIService %s", name)
	}
	return fmt.Sprintf("APIService %s is local", name)
}

// Ended implements the interface link of package chain.
func (s *Server) Ended(info *genericapirequest.RequestInfo) (decision, reason string) {
	if service := s.service(serviceName(info)); service != nil && service.Spec.Service != nil {
		return proxied(service)
	}
	if what := routes.Missing(s.GenericAPIServer, info); what != "" {
		return "404", what
	}
	return "served", ""
}

func serviceName(info *genericapirequest.RequestInfo) string {
	return info.APIVersion + "." + info.APIGroup
}

// service returns the APIService with the name, or nil if it does not exist.
func (s *Server) service(name string) *apiregistrationv1.APIService {
	service, err := s.APIRegistrationInformers.Apiregistration().V1().APIServices().Lister().Get(name)
	if err != nil {
		return nil // the lister reads from memory, so the only error is NotFound
	}
	return service
}

// proxied explains a request for an APIService of another server.
func proxied(s *apiregistrationv1.APIService) (decision, reason string) {
	available := apiregistrationv1helper.GetAPIServiceConditionByType(s, apiregistrationv1.Available)
	switch {
	case available == nil:
		return "503", fmt.Sprintf("APIService %s has not been checked yet", s.Name)
	case available.Status != apiregistrationv1.ConditionTrue:
		return "503", fmt.Sprintf("APIService %s is not available: %s", s.Name, available.Reason)
	}
	return fmt.Sprintf("proxied to service %s/%s", s.Spec.Service.Namespace, s.Spec.Service.Name),
		"APIService " + s.Name
}
