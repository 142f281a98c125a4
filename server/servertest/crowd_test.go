package servertest_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server"
)

var crowd = flag.Int("crowd", 5, "how many control planes TestCrowd runs at once")

// objectsEach is the number of objects that each control plane of the crowd gets.
const objectsEach = 50

// TestCrowd runs many control planes at once, each with a CRD and objects of its own, and
// checks that none of them sees another one's. It logs how long each step took, and how much memory
// the process needed.
func TestCrowd(t *testing.T) {
	t.Parallel()
	var crowded []*server.Server
	for range *crowd {
		s, err := server.New(server.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Stop(context.Background()); err != nil {
				t.Error(err)
			}
		})
		crowded = append(crowded, s)
	}
	each := func(step string, do func(ctx context.Context, n int, s *server.Server) error) {
		began := time.Now()
		group, ctx := errgroup.WithContext(t.Context())
		group.SetLimit(2 * runtime.NumCPU())
		for n, s := range crowded {
			group.Go(func() error {
				if err := do(ctx, n, s); err != nil {
					return fmt.Errorf("%s control plane %d: %w", step, n, err)
				}
				return nil
			})
		}
		if err := group.Wait(); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s %d control planes: %v, %s", step, *crowd, time.Since(began).Round(time.Millisecond),
			peakMemory())
	}
	each("start", func(ctx context.Context, _ int, s *server.Server) error { return s.Start(ctx) })
	each("fill", fill)
	each("check", checkOwn)
	each("stop", func(ctx context.Context, _ int, s *server.Server) error { return s.Stop(ctx) })
}

// fill creates a CRD, and objects with the number of the control plane in their names.
func fill(ctx context.Context, n int, s *server.Server) error {
	client, err := kubernetes.NewForConfig(s.RESTConfig())
	if err != nil {
		return err
	}
	if err := define(ctx, s.RESTConfig(), client.Discovery().RESTClient()); err != nil {
		return err
	}
	widgets, err := widgetsOf(s)
	if err != nil {
		return err
	}
	for i := range objectsEach / 2 {
		name := fmt.Sprintf("object-%d-%d", n, i)
		config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
		_, err := client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(ctx, config,
			metav1.CreateOptions{})
		if err != nil {
			return err
		}
		widget := &unstructured.Unstructured{}
		widget.SetAPIVersion("example.com/v1")
		widget.SetKind("Widget")
		widget.SetName(name)
		if _, err := widgets.Create(ctx, widget, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

func widgetsOf(s *server.Server) (dynamic.ResourceInterface, error) {
	client, err := dynamic.NewForConfig(s.RESTConfig())
	if err != nil {
		return nil, err
	}
	widgets := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	return client.Resource(widgets).Namespace(metav1.NamespaceDefault), nil
}

// checkOwn checks that a control plane has its own objects and no others.
func checkOwn(ctx context.Context, n int, s *server.Server) error {
	client, err := kubernetes.NewForConfig(s.RESTConfig())
	if err != nil {
		return err
	}
	configs, err := client.CoreV1().ConfigMaps(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	widgets, err := widgetsOf(s)
	if err != nil {
		return err
	}
	list, err := widgets.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var names []string
	for _, c := range configs.Items {
		if c.Name != rootca { // every namespace has it
			names = append(names, c.Name)
		}
	}
	for _, w := range list.Items {
		names = append(names, w.GetName())
	}
	own := fmt.Sprintf("object-%d-", n)
	for _, name := range names {
		if !strings.HasPrefix(name, own) {
			return fmt.Errorf("it has %s of another one", name)
		}
	}
	if len(names) != objectsEach {
		return fmt.Errorf("it has %d objects, want %d", len(names), objectsEach)
	}
	return nil
}

const rootca = "kube-root-ca.crt"

var peak = regexp.MustCompile(`VmHWM:\s*(\d+ kB)`)

// peakMemory returns the most memory that the process has had resident, where the system tells.
func peakMemory() string {
	status, err := os.ReadFile("/proc/self/status")
	if found := peak.FindSubmatch(status); err == nil && found != nil {
		return fmt.Sprintf("at most %s resident", found[1])
	}
	return "resident memory unknown"
}
