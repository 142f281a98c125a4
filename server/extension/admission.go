package extension

import (
	"slices"

	"k8s.io/apiserver/pkg/admission"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	clientrest "k8s.io/client-go/rest"
)

// applyAdmission sets the admission of config: the plugins of the options, then those of the
// control plane.
func (s *Server) applyAdmission(config *genericapiserver.Config) error {
	chain := slices.Clone(s.options.Admission)
	if s.options.ClusterAdmission {
		dynamicClient, err := dynamic.NewForConfig(clientrest.CopyConfig(s.options.RESTConfig))
		if err != nil {
			return err
		}
		s.shared = informers.NewSharedInformerFactory(s.access.client, 0)
		if err := genericoptions.NewAdmissionOptions().ApplyTo(config, s.shared, s.access.client,
			dynamicClient, utilfeature.DefaultFeatureGate, config.EffectiveVersion); err != nil {
			return err
		}
		chain = append(chain, config.AdmissionControl)
	}
	if len(chain) > 0 {
		config.AdmissionControl = admission.NewChainHandler(chain...)
	}
	return nil
}
