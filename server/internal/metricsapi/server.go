package metricsapi

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc/test/bufconn"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/discovery"
	appslisters "k8s.io/client-go/listers/apps/v1"
	batchlisters "k8s.io/client-go/listers/batch/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	"github.com/kinproc/kinproc/server/internal/auth/pki"
	"github.com/kinproc/kinproc/server/internal/stopper"
)

// The Service that the APIServices name. Its external name leads nowhere outside of this process.
const (
	serviceNamespace = "kube-system"
	serviceName      = "kinproc-metrics"
	externalName     = "metrics.kinproc.invalid"
	servicePort      = 443
)

// buffer is how many bytes a connection holds in each direction until they are read.
const buffer = 64 << 10

// Config is what the APIs are made of.
type Config struct {
	// Informers have the pods, their nodes and their owners.
	Informers interface {
		For(example runtime.Object) cache.SharedIndexInformer
		StartWithContext(ctx context.Context)
	}
	// Metadata reads the annotations of other objects.
	Metadata metadata.Interface
	// Discovery finds the resources of other objects.
	Discovery discovery.DiscoveryInterface
	// CA signs the serving certificate.
	CA *pki.Authority
	// Simulates reports whether a node is simulated.
	Simulates func(*corev1.Node) bool
	// Behaves returns a pod with the annotations that apply to it.
	Behaves func(*corev1.Pod) *corev1.Pod
}

// API serves the metrics APIs.
type API struct {
	config  Config
	stopper *stopper.Stopper
	start   func() error // once

	listener *bufconn.Listener
	synced   []cache.InformerSynced
	pods     corelisters.PodLister
	nodes    corelisters.NodeLister
	spaces   corelisters.NamespaceLister
	replicas appslisters.ReplicaSetLister
	rollouts appslisters.DeploymentLister
	stateful appslisters.StatefulSetLister
	daemons  appslisters.DaemonSetLister
	jobs     batchlisters.JobLister
}

// New returns the APIs. They are served from the first connection until the goroutines of s end.
func New(c Config, s *stopper.Stopper) *API {
	a := &API{config: c, stopper: s}
	a.start = sync.OnceValue(a.serve)
	return a
}

// Dial returns a function that connects to the server in memory, and to everything else by next.
func (a *API) Dial(next utilnet.DialFunc) utilnet.DialFunc {
	own := net.JoinHostPort(externalName, fmt.Sprint(servicePort))
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if address != own {
			return next(ctx, network, address)
		}
		if err := a.start(); err != nil {
			return nil, fmt.Errorf("serve metrics: %w", err)
		}
		return a.listener.DialContext(ctx)
	}
}

// serve starts the server.
func (a *API) serve() error {
	pair, err := a.config.CA.Server([]string{serviceName + "." + serviceNamespace + ".svc"}, 0)
	if err != nil {
		return err
	}
	certificate, err := pair.TLS()
	if err != nil {
		return err
	}
	a.watch()
	a.listener = bufconn.Listen(buffer)
	server := &http.Server{
		Handler: a, ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0),
	}
	serving := tls.NewListener(a.listener, &tls.Config{
		Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12,
	})
	if !a.stopper.Go(func() { _ = server.Serve(serving) }) { // always ends with an error
		return net.ErrClosed
	}
	a.stopper.Go(func() {
		<-a.stopper.Context().Done()
		_ = server.Close()
	})
	return nil
}

func (a *API) watch() {
	of := func(example runtime.Object) cache.Indexer {
		informer := a.config.Informers.For(example)
		a.synced = append(a.synced, informer.HasSynced)
		return informer.GetIndexer()
	}
	a.pods = corelisters.NewPodLister(of(&corev1.Pod{}))
	a.nodes = corelisters.NewNodeLister(of(&corev1.Node{}))
	a.spaces = corelisters.NewNamespaceLister(of(&corev1.Namespace{}))
	a.replicas = appslisters.NewReplicaSetLister(of(&appsv1.ReplicaSet{}))
	a.rollouts = appslisters.NewDeploymentLister(of(&appsv1.Deployment{}))
	a.stateful = appslisters.NewStatefulSetLister(of(&appsv1.StatefulSet{}))
	a.daemons = appslisters.NewDaemonSetLister(of(&appsv1.DaemonSet{}))
	a.jobs = batchlisters.NewJobLister(of(&batchv1.Job{}))
	a.config.Informers.StartWithContext(a.stopper.Context())
}
