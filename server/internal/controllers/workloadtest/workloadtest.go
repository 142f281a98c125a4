// Package workloadtest helps test controllers: control planes with chosen controllers, waits for
// what the controllers do, and pods that become ready without nodes.
package workloadtest

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/controllers/loop"
	"github.com/kinproc/kinproc/server/internal/informers/generated"
	"github.com/kinproc/kinproc/server/servertest"
)

// Namespace is where a test that has a control plane of its own has its objects.
const Namespace = "default"

// patience is far longer than anything takes.
const patience = time.Minute

// Run starts a control plane with some controllers, and those that nearly every test needs: of
// namespaces, of service accounts and of garbage.
func Run(
	t testing.TB, controllers []string, configure ...func(*server.Options),
) (*server.Server, kubernetes.Interface) {
	t.Helper()
	s := servertest.Run(t, append([]func(*server.Options){func(o *server.Options) {
		o.Controllers = slices.Concat(controllers, []string{
			"serviceaccount-controller", "garbage-collector-controller", "namespace-controller",
		})
	}}, configure...)...)
	return s, Client(t, s)
}

// Client returns a client of a control plane.
func Client(t testing.TB, s *server.Server) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(s.RESTConfig())
	OK(t, err)
	return client
}

// Alone starts a control plane without controllers, for a test that runs one itself. Pods can be
// created in the namespace default.
func Alone(t testing.TB) (*server.Server, kubernetes.Interface) {
	t.Helper()
	s := servertest.Run(t, servertest.WithoutControllers)
	client := Client(t, s)
	ServiceAccount(t, client, Namespace)
	return s, client
}

// Cluster is a control plane without controllers and its client, in a test.
type Cluster struct {
	*testing.T
	*server.Server
	kubernetes.Interface
}

// NewCluster starts a control plane as [Alone] does.
func NewCluster(t *testing.T) Cluster {
	t.Helper()
	s, client := Alone(t)
	return Cluster{t, s, client}
}

// ServiceAccount creates the service account that pods in a namespace need.
func ServiceAccount(t testing.TB, client kubernetes.Interface, namespace string) {
	t.Helper()
	Must(client.CoreV1().ServiceAccounts(namespace).Create(t.Context(), &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Name: "default"},
	}, metav1.CreateOptions{}))(t)
}

// Dependencies returns what a control loop needs to run alone, with informers of its own. Events
// get the events that it records.
func Dependencies(client kubernetes.Interface) (d loop.Dependencies, events <-chan string) {
	recorder := record.NewFakeRecorder(1000)
	return loop.Dependencies{
		Client: client,
		Informers: generated.Informers{
			SharedInformerFactory: informers.NewSharedInformerFactory(client, 0),
		},
		NewRecorder: func(string) record.EventRecorder { return recorder },
	}, recorder.Events
}

// Start runs a control loop until stop is called or the test ends.
func Start(t testing.TB, d loop.Dependencies, l loop.Loop) (stop func()) {
	t.Helper()
	c := Must(l.New(d))(t)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		d.Informers.Shutdown()
	})
	t.Cleanup(stop)
	return stop
}

// Meanwhile returns a client of a control plane that calls do before its first request with a
// method and a path that ends in suffix. It is for a controller that decides by what it has seen
// before. Done is closed when do has returned.
func Meanwhile(
	t testing.TB, s *server.Server, method, suffix string, do func(context.Context) error,
) (client kubernetes.Interface, done <-chan struct{}) {
	t.Helper()
	happened := make(chan struct{})
	once := sync.OnceFunc(func() {
		defer close(happened)
		if err := do(t.Context()); err != nil {
			t.Error(err)
		}
	})
	config := rest.CopyConfig(s.RESTConfig())
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return RoundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method == method && strings.HasSuffix(r.URL.Path, suffix) {
				once()
			}
			return next.RoundTrip(r)
		})
	})
	client, err := kubernetes.NewForConfig(config)
	OK(t, err)
	return client, happened
}

// RoundTripper is a function as an http.RoundTripper.
type RoundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f RoundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// OK fails the test if there is an error.
func OK(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Must returns a function that returns value, or fails the test if there is an error.
func Must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		OK(t, err)
		return value
	}
}

// Await gets an object until it is as wanted. An object that is not there yet is waited for.
func Await[T any](
	t testing.TB, what string, get func(context.Context) (T, error), wanted func(T) bool,
) T {
	t.Helper()
	var last T
	err := wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, patience, true,
		func(ctx context.Context) (bool, error) {
			got, err := get(ctx)
			if apierrors.IsNotFound(err) {
				return false, nil
			}
			if err != nil {
				return false, err
			}
			last = got
			return wanted(got), nil
		})
	if err != nil {
		text, _ := json.Marshal(last)
		t.Fatalf("%s: %v; the last state is %s", what, err, text)
	}
	return last
}

// Until waits until look returns no complaint.
func Until(t testing.TB, look func(context.Context) (complaint string)) {
	t.Helper()
	var last string
	err := wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, patience, true,
		func(ctx context.Context) (bool, error) {
			last = look(ctx)
			return last == "", nil
		})
	if err != nil {
		t.Fatalf("%v: %s", err, last)
	}
}

// AwaitEvent waits for an event with a reason about an object in a namespace.
func AwaitEvent(t testing.TB, client kubernetes.Interface, namespace, name, reason string) {
	t.Helper()
	Await(t, "the event "+reason+" of "+name, func(ctx context.Context) (*corev1.EventList, error) {
		return client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{
			FieldSelector: "reason=" + reason + ",involvedObject.name=" + name,
		})
	}, func(list *corev1.EventList) bool { return len(list.Items) > 0 })
}

// Pods returns the pods of a namespace with a label selector, without those that are being deleted.
func Pods(t testing.TB, client kubernetes.Interface, namespace, selector string) []corev1.Pod {
	t.Helper()
	list := Must(client.CoreV1().Pods(namespace).List(t.Context(),
		metav1.ListOptions{LabelSelector: selector}))(t)
	var pods []corev1.Pod
	for _, pod := range list.Items {
		if pod.DeletionTimestamp == nil {
			pods = append(pods, pod)
		}
	}
	return pods
}

// Ready makes a pod ready, or not.
func Ready(
	ctx context.Context, client kubernetes.Interface, pod *corev1.Pod, ready bool,
) error {
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID},
		"status": map[string]any{
			"phase": corev1.PodRunning,
			"conditions": []corev1.PodCondition{{
				Type: corev1.PodReady, Status: status, LastTransitionTime: metav1.Now(),
			}},
		},
	})
	if err != nil {
		return err
	}
	_, err = client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType,
		patch, metav1.PatchOptions{}, "status")
	return err
}

// Kubelet makes every pod of a namespace ready that it is for, until the test ends. None means all
// pods.
func Kubelet(
	t testing.TB, client kubernetes.Interface, namespace string, is ...func(*corev1.Pod) bool,
) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0,
		informers.WithNamespace(namespace))
	// More than one, so that many pods are limited by the server and not by this.
	pods, workers := make(chan *corev1.Pod), sync.WaitGroup{}
	t.Cleanup(func() {
		cancel()
		factory.Shutdown()
		workers.Wait()
	})
	for range 8 {
		workers.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case pod := <-pods:
					if err := Ready(ctx, client, pod, true); err != nil && ctx.Err() == nil &&
						!apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
						t.Errorf("make %s ready: %v", pod.Name, err)
					}
				}
			}
		})
	}
	handle := func(obj any) {
		pod := obj.(*corev1.Pod)
		if pod.Status.Phase != corev1.PodPending || pod.DeletionTimestamp != nil {
			return
		}
		for _, is := range is {
			if !is(pod) {
				return
			}
		}
		select {
		case pods <- pod:
		case <-ctx.Done():
		}
	}
	if _, err := factory.Core().V1().Pods().Informer().AddEventHandler(
		cache.ResourceEventHandlerFuncs{
			AddFunc: handle, UpdateFunc: func(_, obj any) { handle(obj) },
		}); err != nil {
		t.Fatal(err)
	}
	factory.StartWithContext(ctx)
}

// Valve returns a lock. While it is locked, an informer learns nothing new. The informer has not
// been started.
func Valve(t testing.TB, informer cache.SharedIndexInformer) sync.Locker {
	t.Helper()
	valve := &sync.RWMutex{}
	OK(t, informer.SetTransform(func(obj any) (any, error) {
		valve.RLock()
		defer valve.RUnlock()
		return obj, nil
	}))
	return valve
}
