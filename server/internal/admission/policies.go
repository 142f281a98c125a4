package admission

import (
	"io"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	mutatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	validatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/client-go/informers"
)

// The policy plugins poll every 100 ms until their informers have synced, starting when they are
// initialized. If that happened before the server serves, as it usually does, the first poll would
// fail and the first write would have to wait for the second. So they are initialized only once
// their informers have synced.

// Deferred collects the plugins to initialize late. It finds them as an
// admission.PluginInitializer.
type Deferred struct {
	plugins []interface{ InitializeLate() error }
}

// Initialize implements admission.PluginInitializer.
func (d *Deferred) Initialize(plugin admission.Interface) {
	if p, ok := plugin.(interface{ InitializeLate() error }); ok {
		d.plugins = append(d.plugins, p)
	}
}

// Start initializes the collected plugins. The shared informers must have synced.
func (d *Deferred) Start() error {
	for _, p := range d.plugins {
		if err := p.InitializeLate(); err != nil {
			return err
		}
	}
	return nil
}

type validatingPolicies struct{ *validatingpolicy.Plugin }

var _ initializer.WantsExternalKubeInformerFactory = validatingPolicies{}

func newValidatingPolicies(config io.Reader) (admission.Interface, error) {
	p, err := validatingpolicy.NewPlugin(config)
	return validatingPolicies{p}, err
}

func (p validatingPolicies) SetExternalKubeInformerFactory(f informers.SharedInformerFactory) {
	p.Plugin.SetExternalKubeInformerFactory(f)
	f.Admissionregistration().V1().ValidatingAdmissionPolicies().Informer()
	f.Admissionregistration().V1().ValidatingAdmissionPolicyBindings().Informer()
}

func (p validatingPolicies) ValidateInitialization() error { return nil }
func (p validatingPolicies) InitializeLate() error {
	return p.Plugin.ValidateInitialization()
}

type mutatingPolicies struct{ *mutatingpolicy.Plugin }

var _ initializer.WantsExternalKubeInformerFactory = mutatingPolicies{}

func newMutatingPolicies(config io.Reader) (admission.Interface, error) {
	p, err := mutatingpolicy.NewPlugin(config)
	return mutatingPolicies{p}, err
}

func (p mutatingPolicies) SetExternalKubeInformerFactory(f informers.SharedInformerFactory) {
	p.Plugin.SetExternalKubeInformerFactory(f)
	f.Admissionregistration().V1().MutatingAdmissionPolicies().Informer()
	f.Admissionregistration().V1().MutatingAdmissionPolicyBindings().Informer()
}

func (p mutatingPolicies) ValidateInitialization() error { return nil }
func (p mutatingPolicies) InitializeLate() error {
	return p.Plugin.ValidateInitialization()
}
