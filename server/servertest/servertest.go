// Package servertest starts control planes for tests and puts into them what a test needs.
//
//	func TestReconciler(t *testing.T) {
//		t.Parallel()
//		s := servertest.Run(t)
//		servertest.CRDs(t, s, servertest.Files("config/crd/bases"))
//		client := kubernetes.NewForConfigOrDie(s.RESTConfig())
//		…
//	}
//
// With [Run], every test gets its own control plane with its own port and its own etcd. The control
// plane is ephemeral and stops when the test ends. With [Shared], the tests of a package share one
// and get a namespace each.
//
// # Helpers
//
// The helpers take any cluster as an [API]: a control plane from [Run], the API from [Shared], or
// that of any client configuration with [ForConfig]. They return when their effect can be relied
// on, and they fail the test if that takes longer than a minute.
//
//   - [CRDs] installs CRDs. [Apply] creates objects of any kind.
//   - [Webhooks] installs webhooks that the test process serves, and [APIService] registers an
//     extension API server that the test process runs.
//   - [User] returns the client configuration of a user with some permissions. [Kubeconfig] writes
//     a client configuration to a file, for other programs.
//   - [Namespace] creates a namespace.
//
// # Time
//
// In a bubble of [testing/synctest], a day passes in the time that it takes to do what happens in
// it; see [InBubble].
//
// # Existing clusters
//
// If the environment variable KINPROC_USE_EXISTING_CLUSTER is true, [Cluster] and [Shared] use the
// cluster of the current kubeconfig instead of starting a control plane, so the same tests run
// there. Their differences:
//
//   - All tests share the cluster, now and later. Write to a namespace of the test's own. The
//     helpers delete what they created when the test ends, and leave what had already existed,
//     changed as the test wanted it.
//   - Options of control planes have no effect.
//   - Nodes, more control loops, other admission and other users may exist.
//   - [User] impersonates instead of authenticating with a certificate of its own.
//   - [Webhooks] and [APIService] require that the API server can reach a loopback address of this
//     machine, so the API server must run on this machine and not in a container.
//   - Logs of failed tests have nothing from the cluster.
//
// [Run] always starts a control plane.
package servertest

import (
	"context"
	"os"
	"time"

	"github.com/kinproc/kinproc/server"
)

// TB is the part of testing.TB that this package needs, so that it works with any test framework.
// Fatalf must not return. If a TB has the methods Failed and Logf too, they print the logs of a
// failed test; a method Context bounds what the helpers do.
type TB interface {
	Helper()
	Cleanup(func())
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

// Timeouts of start and stop, an order of magnitude longer than needed on a loaded machine with the
// race detector.
const (
	startTimeout = 60 * time.Second
	stopTimeout  = 30 * time.Second
)

// Run starts a control plane, returns it when it is ready, and stops it when the test ends. The
// test fails if the start or the stop fails. The functions in configure can change the options,
// which are zero by default.
//
// If the test fails and t has the methods Failed and Logf, as a *testing.T has, the latest lines of
// the control plane's log, the latest versions of the objects in the namespaces that the test has
// written to, and the latest requests go to Logf. Reads are left out unless they were refused, or
// the environment variable KINPROC_PRINT_READS is set. Otherwise nothing is printed. Options.Log
// and Options.AuditBackend replace the log and the requests.
//
// The Kubernetes libraries log to klog, which the whole process shares. The first call of Run makes
// klog discard that, also for other code of the process, unless a flag of klog has been set, such
// as -v. A logger that is set with klog.SetLogger, before or after, gets everything. To see klog on
// standard error, call klog.LogToStderr(true) after Run.
func Run(t TB, configure ...func(*server.Options)) *server.Server {
	t.Helper()
	options := server.Options{EmulatedVersion: os.Getenv(server.KubernetesVariable)}
	for _, c := range configure {
		c(&options)
	}
	bubble := inBubble(t)
	if bubble && options.Network == nil {
		t.Fatalf("servertest: Run in a bubble of testing/synctest needs the option servertest.InBubble: " +
			"no time passes while a goroutine waits for a socket")
	}
	setGlobals()
	tellVersions(t)
	recorder, printed := record(t, &options)
	s, err := server.New(options)
	if err != nil {
		t.Fatalf("servertest: %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if err := s.Start(ctx); err != nil {
		t.Cleanup(printed.print)
		t.Fatalf("servertest: start: %v", err)
	}
	recorder.started(s)
	started := s
	t.Cleanup(func() {
		printed.look()
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		if err := started.Stop(ctx); err != nil {
			t.Errorf("servertest: stop: %v", err)
		}
		if bubble {
			time.Sleep(lingering)
		}
		printed.print()
		// The testing package keeps this function, and everything it refers to, until the parent of
		// parallel tests ends.
		started, printed = nil, nil
	})
	return s
}

// From returns an option for [Run] that begins with a snapshot, such as a package's tests can take
// once and share: what is in it need not be created again for each test.
func From(snapshot *server.Snapshot) func(*server.Options) {
	return func(o *server.Options) { o.From = snapshot }
}

// Kubernetes returns an option for [Run] that makes the control plane behave as a minor version of
// Kubernetes, such as "1.35"; see [server.Options]. A process has control planes of one version:
// the first decides, and starting one of another version fails the test. So set the version for all
// tests of a package, or let the environment variable KINPROC_KUBERNETES have it:
//
//	KINPROC_KUBERNETES=1.35 go test ./...
func Kubernetes(version string) func(*server.Options) {
	return func(o *server.Options) { o.EmulatedVersion = version }
}

// WithoutControllers is an option for [Run] that disables all controllers, so that nothing changes
// objects behind the test's back.
func WithoutControllers(o *server.Options) { o.Controllers = []string{"-*"} }

// Workloads is an option for [Run] that brings workloads to life: all controllers run, and there is
// a simulated node for the pods.
func Workloads(o *server.Options) {
	o.Controllers = []string{"*"}
	o.SimulatedNodes = max(o.SimulatedNodes, 1)
}
