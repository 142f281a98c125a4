package admission

import (
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"

	"github.com/kinproc/kinproc/chain/core/admissionregistration"
)

// Exclusions is the admission.PluginInitializer that tells policies and webhooks what they are not asked about.
type Exclusions struct{}

// Initialize implements admission.PluginInitializer.
func (Exclusions) Initialize(plugin admission.Interface) {
	if p, ok := plugin.(initializer.WantsExcludedAdmissionResources); ok {
		p.SetExcludedAdmissionResources(admissionregistration.Excluded())
	}
}
