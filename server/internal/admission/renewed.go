package admission

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
)

// policyPlugin is what the two policy plugins have in common.
type policyPlugin interface {
	admission.Interface
	admission.InitializationValidator
	initializer.WantsManifestLoaders
	SetExternalKubeInformerFactory(informers.SharedInformerFactory)
	SetExternalKubeClientSet(kubernetes.Interface)
	SetRESTMapper(meta.RESTMapper)
	SetDynamicClient(dynamic.Interface)
	SetDrainedNotification(<-chan struct{})
	SetUnconditionalAuthorizer(authorizer.UnconditionalAuthorizer)
	SetExcludedAdmissionResources([]schema.GroupResource)
	SetAPIServerID(string)
	WaitForReady() bool
}

// renewed is a policy plugin that can be replaced by a new one with the same configuration and
// dependencies. It is initialized late; see [Deferred].
type renewed[P policyPlugin] struct {
	new   func() (P, error)
	kinds []schema.GroupKind

	setters []func(P)
	drained <-chan struct{}

	mu      sync.Mutex // held while the plugin is replaced
	stop    chan struct{}
	current atomic.Pointer[P]
}

func newRenewed[P policyPlugin](
	config io.Reader, new func(io.Reader) (P, error), kinds ...string,
) (*renewed[P], error) {
	var stored []byte
	if config != nil {
		var err error
		if stored, err = io.ReadAll(config); err != nil {
			return nil, err
		}
	}
	r := &renewed[P]{new: func() (P, error) {
		if config == nil {
			return new(nil)
		}
		return new(bytes.NewReader(stored))
	}}
	for _, kind := range kinds {
		r.kinds = append(r.kinds, admissionKind(kind))
	}
	p, err := r.new()
	if err != nil {
		return nil, err
	}
	r.current.Store(&p)
	return r, nil
}

func (r *renewed[P]) plugin() P { return *r.current.Load() }

// set calls set with the current plugin, and with each later one.
func (r *renewed[P]) set(set func(P)) {
	r.setters = append(r.setters, set)
	set(r.plugin())
}

// Handles implements admission.Interface.
func (r *renewed[P]) Handles(o admission.Operation) bool { return r.plugin().Handles(o) }

// ValidateInitialization does nothing, because the plugin is initialized late.
func (r *renewed[P]) ValidateInitialization() error { return nil }

// InitializeLate initializes the plugin.
func (r *renewed[P]) InitializeLate() error { return r.initialize(r.plugin()) }

// initialize initializes a plugin, which ends when the server ends or when another one replaces it.
func (r *renewed[P]) initialize(p P) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-stop:
		case <-r.drained:
		}
	}()
	p.SetDrainedNotification(ended)
	if err := p.ValidateInitialization(); err != nil {
		close(stop)
		return err
	}
	if r.stop != nil {
		close(r.stop)
	}
	r.stop = stop
	return nil
}

func (r *renewed[P]) remembers() []schema.GroupKind { return r.kinds }

func (r *renewed[P]) renew(context.Context) error {
	p, err := r.new()
	if err != nil {
		return err
	}
	for _, set := range r.setters {
		set(p)
	}
	if err := r.initialize(p); err != nil {
		return err
	}
	if !p.WaitForReady() { // ten seconds at most
		return errors.New("policies are not compiled yet")
	}
	r.current.Store(&p)
	return nil
}

// The following methods are those by which initializers find out what the plugin needs.

// SetExternalKubeInformerFactory implements initializer.WantsExternalKubeInformerFactory.
func (r *renewed[P]) SetExternalKubeInformerFactory(f informers.SharedInformerFactory) {
	r.set(func(p P) { p.SetExternalKubeInformerFactory(f) })
}

// SetExternalKubeClientSet implements initializer.WantsExternalKubeClientSet.
func (r *renewed[P]) SetExternalKubeClientSet(c kubernetes.Interface) {
	r.set(func(p P) { p.SetExternalKubeClientSet(c) })
}

// SetRESTMapper implements initializer.WantsRESTMapper.
func (r *renewed[P]) SetRESTMapper(m meta.RESTMapper) { r.set(func(p P) { p.SetRESTMapper(m) }) }

// SetDynamicClient implements initializer.WantsDynamicClient.
func (r *renewed[P]) SetDynamicClient(c dynamic.Interface) {
	r.set(func(p P) { p.SetDynamicClient(c) })
}

// SetDrainedNotification implements initializer.WantsDrainedNotification.
func (r *renewed[P]) SetDrainedNotification(stop <-chan struct{}) { r.drained = stop }

// SetUnconditionalAuthorizer implements initializer.WantsUnconditionalAuthorizer.
func (r *renewed[P]) SetUnconditionalAuthorizer(a authorizer.UnconditionalAuthorizer) {
	r.set(func(p P) { p.SetUnconditionalAuthorizer(a) })
}

// SetExcludedAdmissionResources implements initializer.WantsExcludedAdmissionResources.
func (r *renewed[P]) SetExcludedAdmissionResources(resources []schema.GroupResource) {
	r.set(func(p P) { p.SetExcludedAdmissionResources(resources) })
}

// SetAPIServerID implements initializer.WantsAPIServerID.
func (r *renewed[P]) SetAPIServerID(id string) { r.set(func(p P) { p.SetAPIServerID(id) }) }

// SetManifestLoaders implements initializer.WantsManifestLoaders.
func (r *renewed[P]) SetManifestLoaders(l *initializer.ManifestLoaders) {
	r.set(func(p P) { p.SetManifestLoaders(l) })
}
