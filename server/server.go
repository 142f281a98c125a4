package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/chain"
	"github.com/kinproc/kinproc/chain/kind"
	"github.com/kinproc/kinproc/server/internal/admission"
	"github.com/kinproc/kinproc/server/internal/loopback"
)

// What a data directory holds.
const (
	etcdDir = "etcd"
	pkiDir  = "pki"
)

// Server is a control plane.
type Server struct {
	options Options
	dir     string // DataDir, or the temporary directory in its place

	listener  *listener
	etcd      *etcd
	backend   *chain.Storage
	transport *loopback.Transport
	loopback  *rest.Config
	chain     *chain.Chain
	access    *access

	timeline      timeline
	lateAdmission admission.Deferred
	services      services
	groups        []kind.Group

	ready     atomic.Bool // Start has succeeded
	mu        sync.Mutex
	started   chan struct{}           // closed when the start has ended, in whatever way; nil before it begins
	interrupt context.CancelCauseFunc // ends the start
	stopping  bool                    // nothing begins any more
	stopOnce  sync.Once
	stopErr   error

	cancel   context.CancelFunc
	running  sync.WaitGroup
	requests sync.WaitGroup // those that are served

	failOnce sync.Once
	failed   chan struct{} // closed when the control plane cannot go on
	err      error         // why; read it after failed is closed
}

// fail notes the first reason why the control plane cannot go on.
func (s *Server) fail(err error) {
	s.failOnce.Do(func() {
		s.err = err
		close(s.failed)
	})
}

// New makes a control plane, which [Server.Start] starts.
func New(options Options) (*Server, error) {
	options.complete()
	if err := errors.Join(options.validate()...); err != nil {
		return nil, err
	}
	if err := setFeatureGates(options.FeatureGates); err != nil {
		return nil, options.wrong("FeatureGates", "feature-gates", "%w", err)
	}
	return &Server{options: options, failed: make(chan struct{})}, nil
}

// run runs f in a goroutine that Stop waits for, and reports whether it does: once Stop has begun, it does not.
func (s *Server) run(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopping {
		s.running.Go(f)
	}
	return !s.stopping
}

var (
	errStarted = errors.New("start: a control plane starts once, make another one")
	errStopped = errors.New("stopped while it started")
)

// begin makes the context of the start, which Stop ends too, and the function to call at the end of the start.
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

// Start returns when the control plane is ready, or after undoing everything. The context bounds the start only.
func (s *Server) Start(ctx context.Context) (err error) {
	ctx, end, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	ctx = s.options.withLog(ctx)
	runCtx, cancel := context.WithCancel(s.options.withLog(context.Background()))
	s.cancel = cancel
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop(context.WithoutCancel(ctx)))
		}
	}()
	defer s.timeline.phase("")
	s.timeline.phase("listen")
	if err := s.listen(); err != nil {
		return err
	}
	s.timeline.phase("etcd")
	if err := s.makeDir(); err != nil {
		return err
	}
	if s.etcd, err = s.startEtcd(ctx); err != nil {
		return err
	}
	s.watchEtcd(runCtx)
	s.backend = chain.NewStorage(s.etcd.client, s.options.EtcdPrefix)
	s.transport = &loopback.Transport{}
	s.loopback = &rest.Config{
		Host:          "https://" + s.listener.Addr().String(),
		Transport:     s.transport,
		BearerToken:   uuid.NewString(),
		QPS:           -1,
		UserAgent:     "kube-apiserver/" + KubernetesVersion + " (kinproc)", // the field manager of what the server itself writes
		ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeProtobuf},
		// The server does not warn itself of what it serves.
		WarningHandler: rest.NoWarnings{},
	}
	if err := s.newAllocator(); err != nil {
		return err
	}
	s.timeline.phase("certificates")
	if s.access, err = newAccess(&s.options, s.dir, s.listener.Addr(), s.services.allocator.FirstIP()); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	// Much of what follows ends only after it has run, so an interrupted start goes on until it is ready.
	late, cancelLate := outlive(ctx, lateness)
	defer cancelLate()
	if err := s.startChain(late, runCtx); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	s.timeline.phase("") // the timeline is complete once others may read it
	s.ready.Store(true)
	return nil
}

// startChain makes the API servers and waits until they are ready.
func (s *Server) startChain(ctx, runCtx context.Context) error {
	s.timeline.phase("kinds")
	config, err := s.config(runCtx)
	if err != nil {
		return err
	}
	s.timeline.phase("chain")
	s.chain, err = chain.Assemble(*config)
	if err != nil {
		return err
	}
	s.timeline.phase("prepare")
	prepared, err := s.chain.Aggregator.PrepareRun()
	if err != nil {
		return fmt.Errorf("prepare the chain: %w", err)
	}
	s.timeline.phase("first-objects")
	if err := s.writeFirstObjects(ctx); err != nil {
		return err
	}
	s.timeline.phase("informers")
	generic := s.chain.Aggregator.GenericAPIServer
	generic.ShutdownTimeout = shutdownTimeout
	if err := s.prepareAllocator(ctx, runCtx); err != nil {
		return err
	}
	generic.Handler.FullHandlerChain = s.counted(generic.Handler.FullHandlerChain)
	s.transport.Serve(generic.Handler)
	if err := s.chain.StartInformers(ctx, runCtx); err != nil {
		return err
	}
	if err := s.lateAdmission.Start(); err != nil {
		return fmt.Errorf("admission: %w", err)
	}
	s.timeline.phase("hooks")
	s.run(func() {
		if err := prepared.Run(runCtx); err != nil {
			s.fail(fmt.Errorf("run the chain: %w", err))
		}
	})
	if err := s.startControllers(runCtx, config.Informers); err != nil {
		return err
	}
	return s.waitReady(ctx)
}

// lateness is how long an interrupted start may go on: far more than it takes.
const lateness = 10 * time.Second

// outlive makes a context that ends some time after its parent does.
func outlive(parent context.Context, by time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(parent))
	stop := context.AfterFunc(parent, func() {
		time.AfterFunc(by, func() { cancel(context.Cause(parent)) })
	})
	return ctx, func() { stop(); cancel(nil) }
}

// shutdownTimeout is how long the HTTP server may wait for connections to become idle before they are closed.
const shutdownTimeout = 10 * time.Millisecond

func (s *Server) makeDir() (err error) {
	if s.dir = s.options.DataDir; s.dir != "" {
		if err := ownDir(s.dir); err != nil {
			return s.options.wrong("DataDir", "data-dir", "%w", err)
		}
		return nil
	}
	s.dir, err = os.MkdirTemp("", "kinproc-")
	return err
}

// ownDir creates a data directory. It refuses one that holds something else, such as a home
// directory.
func ownDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("%w; name a directory that can be created or written to", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == etcdDir || e.Name() == pkiDir {
			return nil
		}
	}
	if len(entries) > 0 {
		return fmt.Errorf("%s was not made by kinproc, it holds %q; name an empty directory or a new one", dir, entries[0].Name())
	}
	return nil
}

// counted lets Stop wait for the requests that are served, and gives them a logger.
func (s *Server) counted(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.requests.Add(1)
		defer s.requests.Done()
		handler.ServeHTTP(w, r.WithContext(s.options.withLog(r.Context())))
	})
}

// waitReady waits until /readyz says so.
func (s *Server) waitReady(ctx context.Context) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	says := ""
	for {
		ready, answer := s.askReady(ctx)
		if ready {
			return nil
		}
		if answer != "" {
			says = answer
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not ready: %w; /readyz says:\n%s", context.Cause(ctx), says)
		case <-s.failed:
			return s.err
		case <-tick.C:
		}
	}
}

// askReady asks for /readyz in process. The transport stands between the start and the handler, which panics when ctx ends in between.
func (s *Server) askReady(ctx context.Context) (ready bool, says string) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.loopback.Host+"/readyz?verbose", nil)
	if err != nil {
		return false, err.Error()
	}
	r.Header.Set("Authorization", "Bearer "+s.loopback.BearerToken) // anonymous requests may be refused
	answer, err := s.transport.RoundTrip(r)
	if err != nil {
		return false, ""
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return err == nil && answer.StatusCode == http.StatusOK, string(body)
}

// Stop ends the control plane and waits until nothing of it is left: first the API servers, then etcd, then temporary files. A start that
// is under way is ended. The context bounds the wait. Further calls return what the first one did.
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
		return s.stop(ctx)
	case <-ctx.Done():
		return fmt.Errorf("stop: %w", context.Cause(ctx))
	}
}

func (s *Server) stop(ctx context.Context) error {
	s.stopOnce.Do(func() { s.stopErr = s.stopAll(ctx) })
	return s.stopErr
}

func (s *Server) stopAll(ctx context.Context) error {
	s.mu.Lock()
	s.stopping = true
	s.mu.Unlock()
	s.stopServices()
	if s.backend != nil {
		s.backend.Hold()
	}
	s.cancel()
	s.running.Wait()
	if s.listener != nil {
		s.listener.closeAll()
	}
	if s.transport != nil {
		s.transport.Stop()
	}
	s.requests.Wait()
	if s.backend != nil {
		s.backend.Stop()
	}
	var errs []error
	if s.etcd != nil {
		errs = append(errs, s.etcd.stop(ctx))
	}
	if s.options.DataDir == "" && s.dir != "" {
		errs = append(errs, os.RemoveAll(s.dir))
	}
	return errors.Join(errs...)
}

// Failed returns a channel that is closed when the control plane fails while it runs. [Server.Err]
// then says why. It may be called before Start.
func (s *Server) Failed() <-chan struct{} { return s.failed }

// Err returns why the control plane failed, or nil if it has not.
func (s *Server) Err() error {
	select {
	case <-s.failed:
		return s.err
	default:
		return nil
	}
}

// mustBeStarted panics unless Start has succeeded, on behalf of a method that is of no use before.
func (s *Server) mustBeStarted(method string) {
	if !s.ready.Load() {
		panic(beforeStart(method))
	}
}

func beforeStart(method string) string { return "server: " + method + " called before Start succeeded" }

// Dir returns the directory of data, keys and certificates: Options.DataDir, or the temporary
// directory in its place. It panics if Start has not succeeded.
func (s *Server) Dir() string {
	s.mustBeStarted("Dir")
	return s.dir
}

// Kinds returns the number of built-in kinds that the control plane serves. It panics if Start has
// not succeeded.
func (s *Server) Kinds() int {
	s.mustBeStarted("Kinds")
	return s.chain.Core.Kinds
}

// URL returns the address of the API for a client on this machine. It panics if Start has not
// succeeded.
func (s *Server) URL() string {
	s.mustBeStarted("URL")
	address := s.listener.Addr().String()
	if host, port, err := net.SplitHostPort(address); err == nil && net.ParseIP(host).IsUnspecified() {
		address = net.JoinHostPort(DefaultBindAddress, port)
	}
	return "https://" + address
}
