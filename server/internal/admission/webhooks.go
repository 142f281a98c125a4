package admission

import (
	"context"
	"io"
	"sync"
	"sync/atomic"

	"k8s.io/apiserver/pkg/admission"
	webhookinitializer "k8s.io/apiserver/pkg/admission/plugin/webhook/initializer"
	mutatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	validatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/validating"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/featuregate"
)

// webhookPlugin is what the two webhook plugins have in common.
type webhookPlugin interface {
	latePlugin
	webhookinitializer.WantsServiceResolver
	webhookinitializer.WantsAuthenticationInfoResolverWrapper
	InspectFeatureGates(featuregate.FeatureGate)
	SetReadyFunc(admission.ReadyFunc)
}

// webhooks is a webhook plugin that is made once a configuration of webhooks exists. Each webhook
// plugin makes CEL environments of its own, which takes some 4 ms of CPU, and most control planes
// in tests have no webhooks.
type webhooks[P webhookPlugin] struct {
	late[P]
	informerOf func(informers.SharedInformerFactory) cache.SharedIndexInformer
	made       func() (P, error) // makes the plugin when it is called first
	informer   cache.SharedIndexInformer
	wanted     atomic.Bool
}

func newWebhooks[P webhookPlugin](
	new func(io.Reader) (P, error),
	informerOf func(informers.SharedInformerFactory) cache.SharedIndexInformer,
) *webhooks[P] {
	w := &webhooks[P]{informerOf: informerOf}
	w.made = sync.OnceValues(func() (P, error) {
		p, err := new(nil)
		if err != nil {
			return p, err
		}
		w.initialize(p)
		if err := p.ValidateInitialization(); err != nil {
			return p, err
		}
		// The plugin collects the configurations from the store of the informer. By default, it
		// would first wait until its own handler has seen them, and poll every 100 ms for that.
		p.SetReadyFunc(w.informer.HasSynced)
		return p, nil
	})
	return w
}

// plugin returns the plugin, or false if there are no webhooks.
func (w *webhooks[P]) plugin() (P, bool, error) {
	if !w.wanted.Load() {
		var none P
		return none, false, nil
	}
	p, err := w.made()
	return p, err == nil, err
}

func (w *webhooks[P]) want() {
	w.wanted.Store(true)
	_, _ = w.made() // the next request reports the error
}

// InitializeLate makes the plugin if there are webhooks from the start.
func (w *webhooks[P]) InitializeLate() error {
	if len(w.informer.GetStore().ListKeys()) > 0 {
		w.want()
	}
	return nil
}

// SetExternalKubeInformerFactory implements initializer.WantsExternalKubeInformerFactory.
func (w *webhooks[P]) SetExternalKubeInformerFactory(f informers.SharedInformerFactory) {
	w.late.SetExternalKubeInformerFactory(f)
	w.informer = w.informerOf(f)
	// An error means that the informer has stopped, and so has the server.
	_, _ = w.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { w.want() },
	})
}

// SetDrainedNotification implements initializer.WantsDrainedNotification.
func (w *webhooks[P]) SetDrainedNotification(stop <-chan struct{}) {
	w.set(func(p P) { p.SetDrainedNotification(stop) })
}

// InspectFeatureGates implements initializer.WantsFeatures.
func (w *webhooks[P]) InspectFeatureGates(gates featuregate.FeatureGate) {
	w.set(func(p P) { p.InspectFeatureGates(gates) })
}

// SetServiceResolver implements webhookinitializer.WantsServiceResolver.
func (w *webhooks[P]) SetServiceResolver(r webhook.ServiceResolver) {
	w.set(func(p P) { p.SetServiceResolver(r) })
}

// SetAuthenticationInfoResolverWrapper implements
// webhookinitializer.WantsAuthenticationInfoResolverWrapper.
func (w *webhooks[P]) SetAuthenticationInfoResolverWrapper(
	wrap webhook.AuthenticationInfoResolverWrapper,
) {
	w.set(func(p P) { p.SetAuthenticationInfoResolverWrapper(wrap) })
}

// mutatingWebhooks is the plugin MutatingAdmissionWebhook.
type mutatingWebhooks struct {
	*webhooks[*mutatingwebhook.Plugin]
}

var _ admission.MutationInterface = mutatingWebhooks{}

// newMutatingWebhooks returns the plugin. With a configuration, there may be webhooks in files, so
// the plugin is made at once.
func newMutatingWebhooks(config io.Reader) (admission.Interface, error) {
	if config != nil {
		return mutatingwebhook.NewMutatingWebhook(config)
	}
	return mutatingWebhooks{newWebhooks(mutatingwebhook.NewMutatingWebhook,
		func(f informers.SharedInformerFactory) cache.SharedIndexInformer {
			return f.Admissionregistration().V1().MutatingWebhookConfigurations().Informer()
		})}, nil
}

// Admit implements admission.MutationInterface.
func (w mutatingWebhooks) Admit(
	ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces,
) error {
	p, ok, err := w.plugin()
	if !ok {
		return err
	}
	return p.Admit(ctx, a, o)
}

// validatingWebhooks is the plugin ValidatingAdmissionWebhook.
type validatingWebhooks struct {
	*webhooks[*validatingwebhook.Plugin]
}

var _ admission.ValidationInterface = validatingWebhooks{}

// newValidatingWebhooks returns the plugin, as newMutatingWebhooks does.
func newValidatingWebhooks(config io.Reader) (admission.Interface, error) {
	if config != nil {
		return validatingwebhook.NewValidatingAdmissionWebhook(config)
	}
	return validatingWebhooks{newWebhooks(validatingwebhook.NewValidatingAdmissionWebhook,
		func(f informers.SharedInformerFactory) cache.SharedIndexInformer {
			return f.Admissionregistration().V1().ValidatingWebhookConfigurations().Informer()
		})}, nil
}

// Validate implements admission.ValidationInterface.
func (w validatingWebhooks) Validate(
	ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces,
) error {
	p, ok, err := w.plugin()
	if !ok {
		return err
	}
	return p.Validate(ctx, a, o)
}
