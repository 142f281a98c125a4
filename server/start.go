package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/dynamic"
	rbacinformers "k8s.io/client-go/informers/rbac/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/chain"
	"github.com/kinproc/kinproc/server/internal/admission/quota"
	"github.com/kinproc/kinproc/server/internal/apis"
	"github.com/kinproc/kinproc/server/internal/auth"
	"github.com/kinproc/kinproc/server/internal/bootstrap"
	"github.com/kinproc/kinproc/server/internal/controllers/cluster/clusterroleaggregation"
	"github.com/kinproc/kinproc/server/internal/datadir"
	"github.com/kinproc/kinproc/server/internal/descriptors"
	"github.com/kinproc/kinproc/server/internal/etcdconn"
	"github.com/kinproc/kinproc/server/internal/informers"
	"github.com/kinproc/kinproc/server/internal/loops"
	"github.com/kinproc/kinproc/server/internal/metricsapi"
	"github.com/kinproc/kinproc/server/internal/requests"
	"github.com/kinproc/kinproc/server/internal/requests/connections"
	"github.com/kinproc/kinproc/server/internal/requests/paths"
	"github.com/kinproc/kinproc/server/internal/reset"
	"github.com/kinproc/kinproc/server/internal/simulated"
	"github.com/kinproc/kinproc/server/internal/stopper"
)

var (
	errStarted = errors.New("start: a control plane starts once, create another one with New")
	errStopped = errors.New("stopped while starting")
)

// Start starts the control plane. It returns when the control plane is ready or, if that fails,
// after it has cleaned up. The context bounds the start only. A control plane starts once.
func (s *Server) Start(ctx context.Context) error {
	ctx, end, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	release, err := descriptors.Reserve()
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	defer release()
	r, err := starter{s}.start(s.options.withLog(ctx))
	s.timeline.phase("")
	if err != nil {
		release()
		undoing, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
		defer cancel()
		return errors.Join(err, s.stopper.Stop(undoing))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = r
	return nil
}

// begin returns the context of the start, which Stop cancels too, and a function to call when the
// start ends.
func (s *Server) begin(ctx context.Context) (context.Context, func(), error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started != nil {
		return nil, nil, errStarted
	}
	ctx, s.interrupt = context.WithCancelCause(ctx)
	s.started = make(chan struct{})
	return ctx, func() {
		s.interrupt(nil)
		close(s.started)
	}, nil
}

// ground is what a control plane stands on, before any object is read.
type ground struct {
	listener   *connections.Listener
	directory  *datadir.Dir
	etcd       *etcdconn.Conn
	encryption *etcdconn.Encryption // nil unless stored objects are encrypted
	storage    *chain.Storage
	requests   *requests.Requests
}

// running is a control plane that is ready.
type running struct {
	ground
	access      *auth.Access
	etcdClients *etcdconn.Clients // nil unless etcd serves clients outside the process
	informers   *informers.Factory
	bootstrap   *bootstrap.Bootstrap
	apis        *apis.APIs
	control     *reset.Control
}

// starter starts a control plane. Its methods are not those of Server, for the reason of [configs].
type starter struct{ *Server }

// start opens the rooms of the control plane in order. Each constructor returns something complete,
// and pushes the steps that end it onto the stopper.
func (s starter) start(ctx context.Context) (*running, error) {
	var sharing sync.WaitGroup
	defer sharing.Wait()
	g, err := s.open(ctx, &sharing)
	if err != nil {
		return nil, err
	}
	s.stopper.EndGoroutines("the API servers and control loops")
	s.stopper.Push("watches", func() error { g.storage.Hold(); return nil })

	// Many of the following parts can end only after they have run, so an interrupted start
	// continues until it is ready.
	continuing, cancel := outlive(ctx, s.stopper)
	defer cancel()
	reading, cancelReading := etcdconn.UntilDamage(continuing, g.storage, s.stopper)
	defer cancelReading()
	r, err := s.serve(continuing, reading, g)
	if err != nil {
		return nil, etcdconn.NameDamage(continuing, g.storage, cmp.Or(s.Err(), err))
	}
	return r, cmp.Or(s.Err(), context.Cause(ctx))
}

// open opens what a control plane stands on. Meanwhile, what all starts of the process share is
// made.
func (s starter) open(ctx context.Context, sharing *sync.WaitGroup) (g ground, err error) {
	o := configs{&s.options}
	if err := o.checkFiles(); err != nil {
		return g, err
	}
	// If another control plane runs here, the port is busy too, but the directory is the better
	// explanation.
	if err := datadir.CheckFree(o.directory()); err != nil {
		return g, err
	}
	s.timeline.phase("listen")
	if g.listener, err = requests.Listen(o.listen(), s.stopper); err != nil {
		return g, err
	}
	s.timeline.phase("etcd")
	if g.directory, err = datadir.Open(o.directory(), s.stopper); err != nil {
		return g, err
	}
	sharing.Go(func() { bootstrap.Share(o.beginsEmpty(), o.enables(clusterroleaggregation.Name)) })
	if g.etcd, err = etcdconn.Open(ctx, o.etcd(g.directory), s.stopper); err != nil {
		return g, err
	}
	// Write this file before keys are generated. A directory that is unsuitable for them has been
	// refused by now.
	if err := datadir.KeepOutOfGit(g.directory.Path); err != nil {
		return g, o.wrong("DataDir", "data-dir", "%w", err)
	}
	if g.encryption, err = etcdconn.OpenEncryption(o.encryption(), s.stopper); err != nil {
		return g, err
	}
	if g.storage, err = etcdconn.NewStorage(ctx, g.etcd, o.storage(g.directory, g.encryption),
		s.stopper); err != nil {
		return g, err
	}
	g.requests, err = requests.Open(o.requests(g.listener), s.stopper)
	return g, err
}

// serve opens the rooms that read stored objects. The context reading ends with ctx, or when a
// stored object cannot be decoded.
func (s starter) serve(ctx, reading context.Context, g ground) (*running, error) {
	o, client, address := configs{&s.options}, g.requests.Client, g.listener.Addr()
	s.timeline.phase("services")
	services, err := bootstrap.OpenServices(reading, o.services(g.storage), s.stopper)
	if err != nil {
		return nil, err
	}
	s.timeline.phase("access")
	all := informers.New(client, g.storage, s.stopper)
	credentials, err := o.auth(g.listener, services.Allocator.FirstIP())
	if err != nil {
		return nil, err
	}
	credentials.Directory, credentials.Client = g.directory, client
	credentials.Roles = func() (rbacinformers.Interface, func(context.Context)) {
		factory := all.Factory()
		return factory.Rbac().V1(), factory.StartWithContext
	}
	access, err := auth.Open(credentials, s.stopper)
	if err != nil {
		return nil, err
	}
	etcdClients, err := g.etcd.Listen(o.etcdClients(g.directory), s.stopper)
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	s.timeline.phase("chain")
	shared, identity, charges := all.Factory(), apis.NewIdentity(), &quota.Charges{}
	parts := o.bootstrap()
	parts.Client, parts.Informers, parts.Storage, parts.Etcd = client, shared, g.storage, g.etcd.Client
	parts.Access, parts.Services, parts.Address, parts.Identity = access, services, address, identity
	boot := bootstrap.Open(parts, s.stopper)
	written := boot.Begin(ctx) // meanwhile
	servers := o.apis(g.encryption, charges)
	servers.Dial = o.dial(s.stopper)
	behaviors, err := s.behaviors(g.requests)
	if err != nil {
		return nil, err
	}
	servers.Kubelet = o.kubelet(client, behaviors)
	if o.servesMetrics() {
		if servers.DialExtensions, err = s.metrics(servers.Dial, g.requests, access, shared,
			behaviors); err != nil {
			return nil, err
		}
	}
	servers.Storage, servers.Etcd, servers.Requests = g.storage, g.etcd, g.requests
	servers.Access, servers.Allocator, servers.Informers = access, services.Allocator, shared
	servers.Address, servers.Identity, servers.Hooks = address, identity, boot.Hooks()
	apiServers, err := apis.Open(servers, s.stopper)
	if err != nil {
		_ = written() // the error of the servers is the reason
		return nil, err
	}
	control := reset.New(reset.Config{
		Etcd: g.etcd, Storage: g.storage, Encrypted: g.encryption != nil, ReadOnly: o.ReadOnly,
		Gate: g.requests.Gate, Informers: all, Parts: boot,
		Followers: []reset.Follower{all, apiServers.Chain, apiServers.Plugins},
		Available: apiServers.Chain.Aggregator.WaitAvailable,
	})
	apiServers.Handle(control.Handlers())
	apiServers.Handle(map[string]http.Handler{paths.Database: http.HandlerFunc(g.etcd.ServeRoom)})
	if err := apiServers.Start(ctx, reading, func(ctx context.Context) error {
		if err := written(); err != nil {
			return err
		}
		return boot.Finish(ctx, bootstrap.APIServices(apiServers.Chain.LocalGroupVersions()))
	}, s.timeline.phase); err != nil {
		return nil, err
	}
	if behaviors != nil {
		s.stopper.Go(func() { behaviors.Run(s.stopper.Context()) })
	}
	if !o.ReadOnly {
		work := o.loops(boot.Complete())
		work.Requests, work.Informers, work.Storage, work.Access = g.requests, shared, g.storage, access
		work.Allocator, work.Charges = services.Allocator, charges
		work.BuiltIn = apiServers.Chain.Core.Resource
		extensions := apiServers.Chain.Aggregator.APIRegistrationInformers.Apiregistration().V1().APIServices()
		work.Metrics = metricsapi.Registration{
			Config: g.requests.Config, APIServices: extensions.Informer(),
		}
		work.Behaviors = behaviors
		work.StaleMetrics = metricsapi.Registered(extensions.Lister())
		if err := loops.Start(work, s.stopper); err != nil {
			return nil, err
		}
	}
	return &running{g, access, etcdClients, shared, boot, apiServers, control}, nil
}

// behaviors returns the behaviors of simulated pods, which do not run yet, or nil if there are
// none.
func (s starter) behaviors(r *requests.Requests) (*simulated.Behaviors, error) {
	if !s.options.PodBehaviors {
		return nil, nil
	}
	config := rest.CopyConfig(r.Config)
	config.ContentConfig = rest.ContentConfig{} // custom resources are JSON
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &simulated.Behaviors{Client: client, ReadOnly: s.options.ReadOnly}, nil
}

// metrics returns what connects to the metrics APIs of this process, and to all other extension API
// servers by dial, which is nil for the usual dialer.
func (s starter) metrics(
	dial utilnet.DialFunc, r *requests.Requests, access *auth.Access, shared *informers.Factory,
	behaviors *simulated.Behaviors,
) (utilnet.DialFunc, error) {
	if dial == nil {
		dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	client, err := metadata.NewForConfig(r.Config)
	if err != nil {
		return nil, err
	}
	return metricsapi.New(metricsapi.Config{
		Informers: shared, Metadata: client, Discovery: r.Client.Discovery(), CA: access.PKI.CA,
		Behaves: behaviors.Of,
	}, s.stopper).Dial(dial), nil
}

// lateness is how long an interrupted start may continue. It is far more than a start takes.
const lateness = 10 * time.Second

// outlive returns a context that ends some time after its parent, or when the control plane fails.
func outlive(parent context.Context, s *stopper.Stopper) (context.Context, context.CancelFunc) {
	ctx, cancel := stopper.Outlive(parent, lateness)
	s.Go(func() {
		select {
		case <-s.Failed():
			cancel(s.Err())
		case <-ctx.Done():
		}
	})
	return ctx, func() { cancel(nil) }
}

// undoTimeout is how long a failed start waits for its cleanup.
const undoTimeout = 5 * time.Second

// Stop stops the control plane and waits until nothing of it is left: first the API servers, then
// etcd, then temporary files. It also stops a start that is in progress. If ctx ends early, the
// stop continues in the background, and the error says what Stop was waiting for. Further calls
// wait for the same stop and return its error.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	started, interrupt := s.started, s.interrupt
	s.mu.Unlock()
	if started == nil {
		return nil
	}
	interrupt(errStopped)
	select {
	case <-started:
		return s.stopper.Stop(ctx)
	case <-ctx.Done():
		return fmt.Errorf("stop: waiting for the end of the start: %w", context.Cause(ctx))
	}
}

// Phase is a part of a start.
type Phase struct {
	Name string
	// Start is the time from the beginning of the start to the beginning of the phase.
	Start time.Duration
	// Took is how long the phase lasted.
	Took time.Duration
}

// timeline records the consecutive phases of a start.
type timeline struct {
	began time.Time

	mu     sync.Mutex
	phases []Phase
	now    string // the current phase
}

// phase ends the current phase and, unless the name is empty, begins the next one.
func (t *timeline) phase(name string) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.now = name
	if t.began.IsZero() {
		t.began = now
	}
	at := now.Sub(t.began)
	if n := len(t.phases); n > 0 && t.phases[n-1].Took == 0 {
		t.phases[n-1].Took = at - t.phases[n-1].Start
	}
	if name != "" {
		t.phases = append(t.phases, Phase{Name: name, Start: at})
	}
}

// Timeline returns the phases of the start in order.
func (s *Server) Timeline() []Phase {
	up(s, "Timeline")
	return s.timeline.phases
}

// Starting returns the name of the phase that the start is in, and nothing before and after the
// start. It may be called at any time.
func (s *Server) Starting() string {
	s.timeline.mu.Lock()
	defer s.timeline.mu.Unlock()
	return s.timeline.now
}
