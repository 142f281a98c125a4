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
	"k8s.io/client-go/metadata"

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

// running is a control plane that is ready. While it starts, it is filled in the order of the
// fields, and the configuration of each room names what it takes from those before it.
type running struct {
	ground
	services    *bootstrap.Services
	sets        *informers.Set
	access      *auth.Access
	etcdClients *etcdconn.Clients  // nil unless etcd serves clients outside the process
	informers   *informers.Factory // what several rooms read
	identity    string             // of this API server, or empty
	charges     *quota.Charges
	bootstrap   *bootstrap.Bootstrap
	behaviors   *simulated.Behaviors // nil unless there are PodBehaviors
	apis        *apis.APIs
	control     *reset.Control
}

// starter starts a control plane. Its methods are not those of Server, for the reason of [configs].
type starter struct{ *Server }

// start opens the rooms of the control plane in order. Each constructor takes a configuration that
// is complete, and pushes the steps that end the room onto the stopper.
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
		return g, o.wrong(&o.DataDir, "%w", err)
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
func (s starter) serve(ctx, reading context.Context, g ground) (r *running, err error) {
	o := configs{&s.options}
	r = &running{ground: g}
	s.timeline.phase("services")
	if r.services, err = bootstrap.OpenServices(reading, o.services(r), s.stopper); err != nil {
		return nil, err
	}
	s.timeline.phase("access")
	r.sets = informers.New(g.requests.Client, g.storage, s.stopper)
	credentials, err := o.auth(r)
	if err != nil {
		return nil, err
	}
	if r.access, err = auth.Open(credentials, s.stopper); err != nil {
		return nil, err
	}
	if r.etcdClients, err = g.etcd.Listen(o.etcdClients(g.directory), s.stopper); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	s.timeline.phase("chain")
	r.informers, r.identity, r.charges = r.sets.Factory(), apis.NewIdentity(), &quota.Charges{}
	r.bootstrap = bootstrap.Open(o.bootstrap(r), s.stopper)
	written := r.bootstrap.Begin(ctx) // meanwhile
	if err := s.openAPIs(r); err != nil {
		_ = written() // the other error is the reason
		return nil, err
	}
	r.control = reset.New(o.reset(r))
	r.apis.Handle(r.control.Handlers())
	r.apis.Handle(map[string]http.Handler{paths.Database: http.HandlerFunc(g.etcd.ServeRoom)})
	if err := r.apis.Start(ctx, reading, func(ctx context.Context) error {
		if err := written(); err != nil {
			return err
		}
		return r.bootstrap.Finish(ctx, bootstrap.APIServices(r.apis.Chain.LocalGroupVersions()))
	}, s.timeline.phase); err != nil {
		return nil, err
	}
	if r.behaviors != nil {
		s.follow(ctx, r.behaviors)
	}
	if o.ReadOnly {
		return r, nil
	}
	return r, loops.Start(o.loops(r), s.stopper)
}

// behaviorTimeout is how long a start waits for the custom resource PodBehavior. Objects that are
// stored already, such as webhooks, may prevent that it is served.
const behaviorTimeout = 10 * time.Second

// follow follows the PodBehaviors until the control plane stops. It returns when clients can create
// them.
func (s starter) follow(ctx context.Context, b *simulated.Behaviors) {
	served := make(chan struct{})
	s.stopper.Go(func() { b.Run(s.stopper.Context(), func() { close(served) }) })
	if b.ReadOnly {
		return
	}
	select {
	case <-served:
	case <-ctx.Done():
	case <-time.After(behaviorTimeout):
	}
}

// openAPIs opens the API servers, and what answers for simulated pods.
func (s starter) openAPIs(r *running) (err error) {
	o := configs{&s.options}
	if r.behaviors, err = o.behaviors(r.requests); err != nil {
		return err
	}
	dial := o.dial(s.stopper)
	extensions := dial
	if o.servesMetrics() {
		if extensions, err = s.metrics(dial, r); err != nil {
			return err
		}
	}
	r.apis, err = apis.Open(o.apis(r, dial, extensions), s.stopper)
	return err
}

// metrics returns what connects to the metrics APIs of this process, and to all other extension API
// servers by dial, which is nil for the usual dialer.
func (s starter) metrics(dial utilnet.DialFunc, r *running) (utilnet.DialFunc, error) {
	if dial == nil {
		dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	client, err := metadata.NewForConfig(r.requests.Config)
	if err != nil {
		return nil, err
	}
	return metricsapi.New(metricsapi.Config{
		Informers: r.informers, Metadata: client, Discovery: r.requests.Client.Discovery(),
		CA: r.access.PKI.CA, Simulates: s.options.marks().Simulates, Behaves: r.behaviors.Of,
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
