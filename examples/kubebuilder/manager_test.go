package kubebuilder_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	greetingsv1 "github.com/kinproc/kinproc/examples/kubebuilder/api/v1"
	"github.com/kinproc/kinproc/examples/kubebuilder/controller"
	"github.com/kinproc/kinproc/server/servertest"
)

// A manager with cache, client, reconciler and leader election works over an in-process
// configuration, and nothing is left when it and the control plane have ended.
func TestInProcessManager(t *testing.T) { // not parallel: it inspects the whole process
	ctrl.SetLogger(logr.Discard())
	if err := greetingsv1.AddToScheme(scheme.Scheme); err != nil {
		t.Fatal(err)
	}
	for _, elect := range []bool{false, true} {
		t.Run(fmt.Sprintf("LeaderElection=%t", elect), func(t *testing.T) {
			before := running()
			t.Run("run", func(t *testing.T) { runManager(t, elect) })
			var left map[string]string
			err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, time.Minute, true,
				func(context.Context) (bool, error) {
					left = running()
					for id := range before {
						delete(left, id)
					}
					return len(left) == 0, nil
				})
			if err != nil {
				for _, stack := range left {
					t.Errorf("still running:\n%s", stack)
				}
			}
		})
	}
}

// runManager runs a manager until it has reconciled, and ends it.
func runManager(t *testing.T, elect bool) {
	s := servertest.Run(t)
	servertest.CRDs(t, s, servertest.Files("config/crd/bases/greetings.example.com_greetings.yaml"))
	inProcess, err := s.InProcessConfig("operator", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	const lease = "greetings.example.com"
	manager, err := ctrl.NewManager(inProcess, ctrl.Options{
		Metrics:                       metricsserver.Options{BindAddress: "0"},
		LeaderElection:                elect,
		LeaderElectionID:              lease,
		LeaderElectionNamespace:       "default",
		LeaderElectionReleaseOnCancel: true,
		Controller:                    config.Controller{SkipNameValidation: new(true)},
	})
	if err != nil {
		t.Fatal(err)
	}
	err = ctrl.NewControllerManagedBy(manager).For(&greetingsv1.Greeting{}).Owns(&corev1.ConfigMap{}).
		Complete(&controller.GreetingReconciler{Client: manager.GetClient()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	end := func() error {
		cancel()
		select {
		case err := <-ended:
			return err
		case <-time.After(time.Minute):
			return fmt.Errorf("the manager does not end")
		}
	}
	defer cancel()

	direct := manager.GetAPIReader()
	greeting := &greetingsv1.Greeting{Spec: greetingsv1.GreetingSpec{Name: "world"}}
	greeting.Namespace, greeting.Name = "default", "g"
	if err := manager.GetClient().Create(t.Context(), greeting); err != nil {
		t.Fatal(err)
	}
	name := client.ObjectKeyFromObject(greeting)
	text := func(want string) {
		t.Helper()
		var last error
		await(t, func(ctx context.Context) bool {
			var m corev1.ConfigMap
			last = direct.Get(ctx, name, &m)
			return last == nil && m.Data["text"] == want
		}, func() string { return fmt.Sprintf("the text is not %q: %v", want, last) })
	}
	text("Hello, world!")

	// The manager's cache follows, and its watches cause the next rounds.
	await(t, func(ctx context.Context) bool {
		return manager.GetClient().Get(ctx, name, greeting) == nil && greeting.Status.Text != ""
	}, func() string { return fmt.Sprintf("the cache has %v", greeting) })
	greeting.Spec.Name = "moon"
	if err := manager.GetClient().Update(t.Context(), greeting); err != nil {
		t.Fatal(err)
	}
	text("Hello, moon!")
	m := &corev1.ConfigMap{}
	m.Namespace, m.Name = name.Namespace, name.Name
	if err := manager.GetClient().Delete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	text("Hello, moon!")

	var held coordinationv1.Lease
	key := client.ObjectKey{Namespace: "default", Name: lease}
	err = direct.Get(t.Context(), key, &held)
	if elect && (err != nil || *held.Spec.HolderIdentity == "") ||
		!elect && !apierrors.IsNotFound(err) {
		t.Errorf("the lease while the manager runs: %v, %v", &held, err)
	}
	if err := end(); err != nil {
		t.Errorf("manager: %v", err)
	}
	if elect {
		if err := direct.Get(t.Context(), key, &held); err != nil || *held.Spec.HolderIdentity != "" {
			t.Errorf("the lease after the end of the manager: %v, %v", &held, err)
		}
	}
}

// await waits until a condition is met.
func await(t *testing.T, met func(context.Context) bool, last func() string) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, time.Minute, true,
		func(ctx context.Context) (bool, error) { return met(ctx), nil })
	if err != nil {
		t.Fatal(last())
	}
}

// running returns the stacks of the goroutines that are expected to end, by their names.
func running() map[string]string {
	buf := make([]byte, 16<<20)
	stacks := map[string]string{}
	for _, stack := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		known := false
		for _, part := range []string{
			"testing.",
			// These run as long as the process.
			"k8s.io/klog/v2.(*flushDaemon).run",
			"k8s.io/apiserver/pkg/server/healthz.(*log).Check",
		} {
			known = known || strings.Contains(stack, part)
		}
		if !known {
			id, _, _ := strings.Cut(stack, " [")
			stacks[id] = stack
		}
	}
	return stacks
}
