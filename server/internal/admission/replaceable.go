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
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
)

// policyPlugin is what the two policy plugins have in common.
type policyPlugin interface {
	latePlugin
	SetRESTMapper(meta.RESTMapper)
	SetDynamicClient(dynamic.Interface)
	WaitForReady() bool
}

// replaceable is a policy plugin that is made by the first request after a policy is bound, because
// most control planes in tests have no policies. It can be replaced by a new one with the same
// configuration and dependencies.
type replaceable[P policyPlugin] struct {
	late[P]
	new   func() (P, error)
	kinds []schema.GroupKind

	drained  <-chan struct{}
	bindings cache.SharedIndexInformer
	static   bool        // there may be policies in files
	bound    atomic.Bool // there is a policy, and it is bound

	mu      sync.Mutex // held while the plugin is made or replaced
	stop    chan struct{}
	current atomic.Pointer[P]
}

func newReplaceable[P policyPlugin](
	config io.Reader, new func(io.Reader) (P, error), kinds ...string,
) (*replaceable[P], error) {
	r := &replaceable[P]{new: func() (P, error) { return new(nil) }}
	for _, kind := range kinds {
		r.kinds = append(r.kinds, admissionKind(kind))
	}
	if config == nil {
		return r, nil
	}
	stored, err := io.ReadAll(config)
	if err != nil {
		return nil, err
	}
	r.static = true
	r.new = func() (P, error) { return new(bytes.NewReader(stored)) }
	_, err = r.new() // fails now if the configuration is wrong
	return r, err
}

// plugin returns the plugin, or false if there are no policies.
func (r *replaceable[P]) plugin() (plugin P, ok bool, err error) {
	if p := r.current.Load(); p != nil {
		return *p, true, nil
	}
	if !r.bound.Load() {
		return plugin, false, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.current.Load(); p != nil {
		return *p, true, nil
	}
	plugin, err = r.make()
	return plugin, err == nil, err
}

// InitializeLate makes the plugin if there are policies from the start.
func (r *replaceable[P]) InitializeLate() error {
	if r.static || len(r.bindings.GetStore().ListKeys()) > 0 {
		r.bound.Store(true)
	}
	_, _, err := r.plugin()
	return err
}

// make makes the plugin, which ends when the server ends or when another one replaces it. The
// caller holds the mutex.
func (r *replaceable[P]) make() (P, error) {
	p, err := r.new()
	if err != nil {
		return p, err
	}
	r.initialize(p)
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
		return p, err
	}
	r.end()
	r.stop = stop
	r.current.Store(&p)
	return p, nil
}

// end ends the current plugin.
func (r *replaceable[P]) end() {
	if r.stop != nil {
		close(r.stop)
		r.stop = nil
	}
}

func (r *replaceable[P]) remembers() []schema.GroupKind { return r.kinds }

// replace makes a new plugin if there are policies.
func (r *replaceable[P]) replace(context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.static && len(r.bindings.GetStore().ListKeys()) == 0 {
		r.end()
		r.current.Store(nil)
		r.bound.Store(false)
		return nil
	}
	p, err := r.make()
	if err != nil {
		return err
	}
	if !p.WaitForReady() { // ten seconds at most
		return errors.New("policies are not compiled yet")
	}
	return nil
}

// watch makes the plugin once one of the bindings exists. A policy without a binding does nothing.
func (r *replaceable[P]) watch(bindings cache.SharedIndexInformer) {
	r.bindings = bindings
	// An error means that the informer has stopped, and so has the server.
	_, _ = bindings.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { r.bound.Store(true) },
	})
}

// SetRESTMapper implements initializer.WantsRESTMapper.
func (r *replaceable[P]) SetRESTMapper(m meta.RESTMapper) { r.set(func(p P) { p.SetRESTMapper(m) }) }

// SetDynamicClient implements initializer.WantsDynamicClient.
func (r *replaceable[P]) SetDynamicClient(c dynamic.Interface) {
	r.set(func(p P) { p.SetDynamicClient(c) })
}

// SetDrainedNotification implements initializer.WantsDrainedNotification.
func (r *replaceable[P]) SetDrainedNotification(stop <-chan struct{}) { r.drained = stop }
