package servertest_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/server"
)

// patience is far longer than anything here takes.
const patience = 30 * time.Second

// oncePerProcess lists parts of the stacks of goroutines that do not belong to a control plane.
var oncePerProcess = []string{
	// flushes klog's buffer as long as the process runs
	"k8s.io/klog/v2.(*flushDaemon).run",
	// the health check "log", started by the first check in a process
	"k8s.io/apiserver/pkg/server/healthz.(*log).Check",
	"testing.",
}

// TestStopLeavesNothing starts, uses and stops control planes and checks that no goroutines are
// left.
func TestStopLeavesNothing(t *testing.T) { // not parallel: it inspects the whole process
	before := running()
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() { startUseStop(t) })
	}
	all.Wait()
	endsAll(t, before)
}

// endsAll waits until all goroutines have ended that were not running before.
func endsAll(t *testing.T, before map[string]string) {
	t.Helper()
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
}

// running returns the stacks of the goroutines that are expected to end, keyed by goroutine.
func running() map[string]string {
	buf := make([]byte, 16<<20)
	stacks := map[string]string{}
	for _, stack := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		known := false
		for _, part := range oncePerProcess {
			known = known || strings.Contains(stack, part)
		}
		if !known {
			id, _, _ := strings.Cut(stack, " [")
			stacks[id] = stack
		}
	}
	return stacks
}

func startUseStop(t *testing.T) {
	s, err := server.New(server.Options{})
	if err != nil {
		t.Error(err)
		return
	}
	if err := s.Start(t.Context()); err != nil {
		t.Error(err)
		return
	}
	w, err := use(t.Context(), s)
	if err != nil {
		t.Error(err)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if w != nil {
		for range w.ResultChan() { // ends with the server
		}
	}
}

// use writes objects and a CRD, and leaves a watch open.
func use(ctx context.Context, s *server.Server) (watch.Interface, error) {
	config := s.RESTConfig()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	w, err := client.CoreV1().ConfigMaps("").Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return w, errors.Join(write(ctx, client), define(ctx, config, client.Discovery().RESTClient()))
}

func write(ctx context.Context, client kubernetes.Interface) error {
	_, err := client.CoreV1().ConfigMaps("default").Create(ctx,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	_, err = client.CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "gone"}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return client.CoreV1().Namespaces().Delete(ctx, "gone", metav1.DeleteOptions{})
}

// define creates a CRD and waits until its custom resources can be listed.
func define(ctx context.Context, config *rest.Config, client rest.Interface) error {
	definitions, err := apiextensionsclient.NewForConfig(config)
	if err != nil {
		return err
	}
	_, err = definitions.ApiextensionsV1().CustomResourceDefinitions().Create(ctx,
		&apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com"},
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{
				Group: "example.com", Scope: apiextensionsv1.NamespaceScoped,
				Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Kind: "Widget"},
				Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
					Name: "v1", Served: true, Storage: true,
					Schema: &apiextensionsv1.CustomResourceValidation{
						OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"},
					},
				}},
			},
		}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, patience, true,
		func(ctx context.Context) (bool, error) {
			return client.Get().AbsPath("/apis/example.com/v1/widgets").Do(ctx).Error() == nil, nil
		})
}

// TestInterruptedStartLeavesNothing interrupts starts after increasing times, until a start is
// ready before it is interrupted. It is not parallel, because it inspects the whole process.
func TestInterruptedStartLeavesNothing(t *testing.T) {
	for _, test := range []struct {
		name      string
		interrupt func(*server.Server, context.CancelFunc) error
	}{
		{"its context ends", func(_ *server.Server, cancel context.CancelFunc) error {
			cancel()
			return nil
		}},
		{"it is stopped", func(s *server.Server, _ context.CancelFunc) error {
			return s.Stop(context.Background())
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := running()
			interrupted := 0
			for after := time.Duration(0); ; after = after*3/2 + time.Millisecond {
				if interruptStart(t, after, test.interrupt) == nil {
					break
				}
				interrupted++
			}
			endsAll(t, before)
			if t.Logf("interrupted %d starts", interrupted); interrupted == 0 {
				t.Error("no start was interrupted")
			}
		})
	}
}

// interruptStart starts a control plane, interrupts the start after a time, and returns the error
// of the start.
func interruptStart(
	t *testing.T, after time.Duration, interrupt func(*server.Server, context.CancelFunc) error,
) error {
	t.Helper()
	s, err := server.New(server.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- s.Start(ctx) }()
	timer := time.NewTimer(after)
	defer timer.Stop()
	for {
		select {
		case err := <-ended:
			if stopErr := s.Stop(t.Context()); stopErr != nil {
				t.Error(stopErr)
			}
			return err
		case <-timer.C:
			if err := interrupt(s, cancel); err != nil {
				t.Error(err)
			}
			timer.Reset(time.Millisecond) // the start may not have begun yet
		}
	}
}

func TestStartOnce(t *testing.T) {
	s, err := server.New(server.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Start(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("start with a canceled context: %v", err)
	}
	if err := s.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "starts once") {
		t.Errorf("start again: %v", err)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}
