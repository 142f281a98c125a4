// Package loop has what control loops are made of. A [Loop] declares one: what it is called, what
// it watches and what it does for a key. A [Controller] runs it.
package loop

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/featuregate"
)

// Loop declares a control loop.
type Loop struct {
	// Name is the loop's name in the flag --controllers of kube-controller-manager.
	Name string
	// Alias is the name before Kubernetes 1.28.
	Alias string
	// Purpose says what the loop does.
	Purpose string
	// Workload is set for a loop that brings workloads to life. A test of another such loop has its
	// objects to itself, so they are off unless they are asked for.
	Workload bool
	// Gate is the feature gate without which the loop does not run, as in kube-controller-manager.
	Gate featuregate.Feature
	// Idle is set if the options of the control plane leave the loop nothing to do. It is not
	// started.
	Idle bool
	// After are the resources whose objects the loop is for. It begins as soon as there is an
	// object of one of them. If there are none, it begins at once.
	After []schema.GroupResource
	// Component is the source of the events of the loop. The default is its name.
	Component string
	// UserAgent names the loop in its requests, with the version in place of %s. Its beginning
	// becomes the field manager. The default is that of the dependencies, kube-controller-manager.
	UserAgent string
	// Workers is how many keys are processed at once. The default is one.
	Workers int
	// Begin returns what one run of the loop does. It asks for the informers, which are started
	// later.
	Begin func(*Controller) Work
}

// Work is what one run of a loop does.
type Work struct {
	// Watches say what the loop watches, and which keys follow from a change.
	Watches []Watch
	// Sync reconciles the state that a key stands for.
	Sync Sync[string]
	// Run replaces Sync in a loop that does not work on keys one by one. It runs until its context
	// ends.
	Run func(context.Context) error
	// End is called at the end of the run, if it is not nil.
	End func()
}

// Dependencies are what loops need.
type Dependencies struct {
	// Config is an administrator's client configuration, for clients other than Client. Its user
	// agent makes kube-controller-manager the field manager.
	Config    *rest.Config
	Client    kubernetes.Interface
	Metadata  metadata.Interface
	Informers Informers
	// Named returns an informer of the objects of a kind that have a certain name. Informers starts
	// it.
	Named func(example runtime.Object, name string) cache.SharedIndexInformer
	// NewRecorder returns a recorder of the events of a component.
	NewRecorder func(component string) record.EventRecorder
}

// Informers are the informers of built-in kinds, one for each kind. They are what loops need of
// client-go's SharedInformerFactory, without its types: each package that reads those takes more
// than a second longer to compile.
type Informers interface {
	// For returns the informer of the kind of example, or nil if there is none.
	For(example runtime.Object) cache.SharedIndexInformer
	// StartWithContext starts the informers that have been asked for.
	StartWithContext(context.Context)
	// Shutdown waits until the informers have ended.
	Shutdown()
}

// Informer returns the informer of the kind of example.
func (d Dependencies) Informer(example runtime.Object) cache.SharedIndexInformer {
	return d.Informers.For(example)
}

// Indexer returns the objects of the kind of example that its informer has.
func (d Dependencies) Indexer(example runtime.Object) cache.Indexer {
	return d.Informers.For(example).GetIndexer()
}

// Controller runs a loop once. The state of a loop embeds it.
type Controller struct {
	Dependencies
	*Queue
	Recorder record.EventRecorder

	loop Loop
	work Work

	mu       sync.Mutex
	ctx      context.Context // that of Run
	handlers Handlers
}

// New returns a controller for one run of the loop. The informers exist afterwards, but need not
// be started.
func (l Loop) New(d Dependencies) (*Controller, error) {
	if l.Component == "" {
		l.Component = l.Name
	}
	c := &Controller{
		Dependencies: d, Queue: New(l.Name), Recorder: d.NewRecorder(l.Component), loop: l,
	}
	c.work = l.Begin(c)
	for _, w := range c.work.Watches {
		if err := w.index(); err != nil {
			return nil, fmt.Errorf("%s: %w", l.Name, err)
		}
	}
	return c, nil
}

// Run runs the loop until ctx ends. It returns when all goroutines of the loop have ended.
func (c *Controller) Run(ctx context.Context) error {
	c.mu.Lock()
	c.ctx = ctx
	c.mu.Unlock()
	defer c.end()
	if err := c.Watch(c.work.Watches...); err != nil {
		return err
	}
	if c.work.Run != nil {
		return c.work.Run(ctx)
	}
	return c.Queue.Run(ctx, max(1, c.loop.Workers), c.work.Sync, c.handlers.Synced()...)
}

// Context returns the context of the run, for what outlives a pass.
func (c *Controller) Context() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ctx
}

func (c *Controller) end() {
	c.mu.Lock()
	c.handlers.Remove()
	c.mu.Unlock()
	if c.work.End != nil {
		c.work.End()
	}
}

// Watch makes a loop that runs watch more. It starts the informers, which do not end with the pass
// that needs them first. [Controller.WaitForSync] waits for them.
func (c *Controller) Watch(watches ...Watch) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range watches {
		if err := c.handlers.Add(w); err != nil {
			return fmt.Errorf("%s: %w", c.loop.Name, err)
		}
	}
	c.Informers.StartWithContext(c.ctx)
	return nil
}

// WaitForSync waits until the loop has seen all objects that existed when it began to watch them,
// or until ctx ends.
func (c *Controller) WaitForSync(ctx context.Context) error {
	c.mu.Lock()
	synced := c.handlers.Synced()
	c.mu.Unlock()
	cache.WaitFor(ctx, "", synced...)
	return ctx.Err()
}
