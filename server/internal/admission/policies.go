package admission

import (
	"context"
	"io"
	"sync"

	"k8s.io/apiserver/pkg/admission"
	mutatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	validatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/client-go/informers"
	"k8s.io/component-base/featuregate"
)

// Deferred collects the plugins to initialize late. It finds them as an
// admission.PluginInitializer.
type Deferred struct {
	plugins   []interface{ InitializeLate() error }
	replacers []replacer

	mu       sync.Mutex
	handlers []*trackedHandler
}

// Initialize implements admission.PluginInitializer.
func (d *Deferred) Initialize(plugin admission.Interface) {
	if p, ok := plugin.(interface{ InitializeLate() error }); ok {
		d.plugins = append(d.plugins, p)
	}
	if p, ok := plugin.(replacer); ok {
		d.replacers = append(d.replacers, p)
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

type validatingPolicies struct {
	*replaceable[*validatingpolicy.Plugin]
}

var _ admission.ValidationInterface = validatingPolicies{}

func newValidatingPolicies(config io.Reader) (admission.Interface, error) {
	r, err := newReplaceable(config, validatingpolicy.NewPlugin,
		"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
	return validatingPolicies{r}, err
}

// SetExternalKubeInformerFactory also asks for the informers, so that they start with the server.
func (p validatingPolicies) SetExternalKubeInformerFactory(f informers.SharedInformerFactory) {
	p.replaceable.SetExternalKubeInformerFactory(f)
	f.Admissionregistration().V1().ValidatingAdmissionPolicies().Informer()
	p.watch(f.Admissionregistration().V1().ValidatingAdmissionPolicyBindings().Informer())
}

func (p validatingPolicies) Validate(
	ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces,
) error {
	plugin, ok, err := p.plugin()
	if !ok {
		return err
	}
	return plugin.Validate(ctx, a, o)
}

type mutatingPolicies struct {
	*replaceable[*mutatingpolicy.Plugin]
}

var _ admission.MutationInterface = mutatingPolicies{}

func newMutatingPolicies(config io.Reader) (admission.Interface, error) {
	r, err := newReplaceable(config, mutatingpolicy.NewPlugin,
		"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding")
	return mutatingPolicies{r}, err
}

// SetExternalKubeInformerFactory also asks for the informers, so that they start with the server.
func (p mutatingPolicies) SetExternalKubeInformerFactory(f informers.SharedInformerFactory) {
	p.replaceable.SetExternalKubeInformerFactory(f)
	f.Admissionregistration().V1().MutatingAdmissionPolicies().Informer()
	p.watch(f.Admissionregistration().V1().MutatingAdmissionPolicyBindings().Informer())
}

// InspectFeatureGates implements initializer.WantsFeatures.
func (p mutatingPolicies) InspectFeatureGates(gates featuregate.FeatureGate) {
	p.set(func(plugin *mutatingpolicy.Plugin) { plugin.InspectFeatureGates(gates) })
}

func (p mutatingPolicies) Admit(
	ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces,
) error {
	plugin, ok, err := p.plugin()
	if !ok {
		return err
	}
	return plugin.Admit(ctx, a, o)
}
