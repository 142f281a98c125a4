package extension

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericfilters "k8s.io/apiserver/pkg/server/filters"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	clientrest "k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/kinproc/kinproc/chain/kind"
	"github.com/kinproc/kinproc/server/internal/requests/connections"
	"github.com/kinproc/kinproc/server/internal/requests/patches"
)

// Server is an extension API server.
type Server struct {
	options  Options
	listener *connections.Listener
	certs    *certificates
	access   *access
	storage  *openStorage
	generic  *genericapiserver.GenericAPIServer
	shared   informers.SharedInformerFactory // nil without Options.ClusterAdmission

	used  atomic.Bool // Run or Close has been called
	ready chan struct{}
}

// New returns a server that listens already, but answers only during [Server.Run]. It returns all
// mistakes in the options at once. A server that is never run must be closed.
func New(o Options) (_ *Server, err error) {
	if o, err = o.complete(); err != nil {
		return nil, err
	}
	if o.RESTConfig == nil {
		if o.RESTConfig, err = clientrest.InClusterConfig(); err != nil {
			return nil, fmt.Errorf("options of the extension API server: RESTConfig is nil, "+
				"which is for servers in a pod: %w", err)
		}
	}
	s := &Server{options: o, ready: make(chan struct{})}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if err := s.listen(); err != nil {
		return nil, err
	}
	if s.certs, err = newCertificates(o.CertDir, s.names(), o.validity); err != nil {
		return nil, fmt.Errorf("serving certificate: %w", err)
	}
	if s.access, err = newAccess(o.RESTConfig); err != nil {
		return nil, err
	}
	if err := s.assemble(); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Server) listen() error {
	l := s.options.Listener
	if l == nil {
		var err error
		address := net.JoinHostPort(s.options.BindAddress, strconv.Itoa(s.options.SecurePort))
		if l, err = net.Listen("tcp", address); err != nil {
			return fmt.Errorf("listen on %s: %w", address, err)
		}
	}
	s.listener = connections.Track(l)
	return nil
}

// assemble makes the API server.
func (s *Server) assemble() error {
	groups := s.options.Groups
	scheme, err := kind.NewScheme(groups...)
	if err != nil {
		return err
	}
	if s.storage, err = s.options.Storage.open(scheme); err != nil {
		return fmt.Errorf("storage: %w", err)
	}
	infos, err := kind.APIGroups(scheme, s.storage, nil, groups...)
	if err != nil {
		return err
	}
	config, err := s.config(scheme, infos)
	if err != nil {
		return err
	}
	if s.generic, err = config.Complete(s.shared).New(s.options.Name,
		genericapiserver.NewEmptyDelegate()); err != nil {
		return err
	}
	s.generic.ShutdownTimeout = connections.ShutdownTimeout
	return s.generic.InstallAPIGroups(infos...)
}

// config returns the configuration of the API server.
func (s *Server) config(
	scheme *runtime.Scheme, infos []*genericapiserver.APIGroupInfo,
) (*genericapiserver.Config, error) {
	config := genericapiserver.NewConfig(serializer.NewCodecFactory(scheme))
	patches.Limit(config)
	config.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	config.LongRunningFunc = genericfilters.BasicLongRunningRequestCheck(
		sets.NewString("watch"), connecting(infos))
	serving := &genericapiserver.SecureServingInfo{
		Listener: s.listener, Cert: s.certs, MinTLSVersion: minTLSVersion,
	}
	config.SecureServing = serving
	// Watches end before their connections do, or each proxy reports that its connection has
	// broken.
	config.ShutdownWatchTerminationGracePeriod = connections.ShutdownTimeout
	var err error
	config.LoopbackClientConfig, err = serving.NewLoopbackClientConfig(newToken(), s.certs.CABundle())
	if err != nil {
		return nil, err
	}
	if err := s.access.applyTo(config); err != nil {
		return nil, err
	}
	if err := s.applyOpenAPI(config, scheme); err != nil {
		return nil, err
	}
	if err := s.applyAdmission(config); err != nil {
		return nil, fmt.Errorf("admission: %w", err)
	}
	config.AddReadyzChecks(s.access.check())
	config.AddHealthChecks(s.storage.checks...)
	if s.options.Configure != nil {
		s.options.Configure(config)
	}
	return config, nil
}

// connecting returns the subresources that are connections, such as websockets.
func connecting(infos []*genericapiserver.APIGroupInfo) sets.String {
	names := sets.NewString()
	for _, info := range infos {
		for _, resources := range info.VersionedResourcesStorageMap {
			for path, storage := range resources {
				_, sub, _ := strings.Cut(path, "/")
				if _, ok := storage.(rest.Connecter); ok && sub != "" {
					names.Insert(sub)
				}
			}
		}
	}
	return names
}

// Run serves until ctx is done. It then completes the requests in flight, ends watches and other
// connections, and closes the listener and the storage. It can be called once.
func (s *Server) Run(ctx context.Context) error {
	if s.used.Swap(true) {
		return errors.New("the extension API server has been run or closed already: make a new one")
	}
	ctx = klog.NewContext(ctx, s.options.Log)
	err := s.access.published(ctx)
	if err == nil {
		err = s.serve(ctx)
	} else {
		s.generic.Destroy()
	}
	if err = errors.Join(err, s.release()); err != nil && ctx.Err() == nil {
		return fmt.Errorf("run the extension API server: %w", err)
	}
	return nil
}

// serve serves until ctx is done.
func (s *Server) serve(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	// Until requests have ended, users must be known.
	background, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	// The library still writes the TLS configuration when it has started the goroutine that copies
	// it after a change. So certificates and authorities change only once requests are served.
	serving := make(chan struct{})
	follow := func(run func()) {
		running.Go(func() {
			select {
			case <-serving:
				run()
			case <-background.Done():
			}
		})
	}
	follow(func() { s.certs.run(background, s.options.Log) })
	follow(func() { s.access.run(background)() })
	if err := s.generic.AddPostStartHook("start-certificate-reload",
		func(genericapiserver.PostStartHookContext) error {
			close(serving)
			return nil
		}); err != nil {
		return err
	}
	running.Go(func() { s.awaitReady(ctx) })
	if s.shared != nil {
		defer s.shared.Shutdown()
	}
	return s.generic.PrepareRun().RunWithContext(ctx)
}

// Ready returns a channel that is closed when the server is ready for requests.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// readyPoll is how often a starting server asks itself whether it is ready. A start takes tens of
// milliseconds.
const readyPoll = 10 * time.Millisecond

// awaitReady closes the channel ready when /readyz says so.
func (s *Server) awaitReady(ctx context.Context) {
	client, err := kubernetes.NewForConfig(s.generic.LoopbackClientConfig)
	if err != nil {
		s.options.Log.Error(err, "make a client for the server itself")
		return
	}
	defer client.RESTClient().(*clientrest.RESTClient).Client.CloseIdleConnections()
	if wait.PollUntilContextCancel(ctx, readyPoll, true, func(context.Context) (bool, error) {
		return client.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error() == nil, nil
	}) == nil {
		close(s.ready)
	}
}

// Close releases what a server that is never run holds: its listener and its storage. After
// [Server.Run] it does nothing.
func (s *Server) Close() error {
	if s.used.Swap(true) {
		return nil
	}
	if s.generic != nil {
		s.generic.Destroy()
	}
	return s.release()
}

func (s *Server) release() error {
	if s.listener != nil {
		s.listener.CloseAll()
	}
	if s.storage != nil {
		return s.storage.close()
	}
	return nil
}

// Addr returns the address at which the server listens.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// host returns the IP address or DNS name at which the control plane reaches the server.
func (s *Server) host() string {
	if s.options.Host != "" {
		return s.options.Host
	}
	ip := s.listener.Addr().(*net.TCPAddr).IP
	if ip.IsUnspecified() {
		return "localhost"
	}
	return ip.String()
}

// names returns the names and addresses in the serving certificate.
func (s *Server) names() []string {
	service := s.options.Name + "." + s.options.Namespace + ".svc"
	names := []string{
		service, service + ".cluster.local", s.host(), "localhost", "127.0.0.1", "::1",
		genericapiserver.LoopbackClientServerNameOverride,
	}
	slices.Sort(names[2:])
	return slices.Compact(names)
}
