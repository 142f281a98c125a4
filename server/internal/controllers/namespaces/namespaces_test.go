package namespaces_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest"
)

// patience is far longer than anything here takes.
const patience = 30 * time.Second

func start(t testing.TB) (*server.Server, kubernetes.Interface) {
	s := servertest.Run(t)
	client, err := kubernetes.NewForConfig(s.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	return s, client
}

func create(t testing.TB, client kubernetes.Interface, ns *corev1.Namespace) string {
	t.Helper()
	ns.GenerateName = "test-"
	made, err := client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return made.Name
}

func createConfigMap(
	t testing.TB, client kubernetes.Interface, namespace string, meta metav1.ObjectMeta,
) {
	t.Helper()
	_, err := client.CoreV1().ConfigMaps(namespace).Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: meta}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func remove(t testing.TB, client kubernetes.Interface, name string) {
	t.Helper()
	if err := client.CoreV1().Namespaces().Delete(t.Context(), name,
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// until waits until wanted accepts the namespace. A nil namespace is one that no longer exists.
func until(
	t testing.TB, client kubernetes.Interface, name string, wanted func(*corev1.Namespace) bool,
) {
	t.Helper()
	w, err := client.CoreV1().Namespaces().Watch(t.Context(), metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String(),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if _, err := client.CoreV1().Namespaces().Get(t.Context(), name,
		metav1.GetOptions{}); apierrors.IsNotFound(err) && wanted(nil) {
		return
	}
	timeout := time.After(patience)
	var last *corev1.Namespace
	for {
		select {
		case e, ok := <-w.ResultChan():
			if !ok {
				t.Fatal("the watch ended")
			}
			if e.Type == watch.Deleted {
				last = nil
			} else if last, ok = e.Object.(*corev1.Namespace); !ok {
				t.Fatalf("watch: %v", e.Object)
			}
			if wanted(last) {
				return
			}
		case <-timeout:
			t.Fatalf("condition not met after %s: %v", patience, last)
		}
	}
}

func gone(ns *corev1.Namespace) bool { return ns == nil }

// says returns a function that reports whether a namespace has a condition with a reason.
func says(
	kind corev1.NamespaceConditionType, status corev1.ConditionStatus, reason string,
) func(*corev1.Namespace) bool {
	return func(ns *corev1.Namespace) bool {
		if ns == nil {
			return false
		}
		for _, c := range ns.Status.Conditions {
			if c.Type == kind {
				return c.Status == status && c.Reason == reason && c.Message != "" &&
					!c.LastTransitionTime.IsZero()
			}
		}
		return false
	}
}

func TestGoesAway(t *testing.T) {
	t.Parallel()
	_, client := start(t)
	name := create(t, client, &corev1.Namespace{})
	createConfigMap(t, client, name, metav1.ObjectMeta{Name: "a"})
	_, err := client.CoreV1().Secrets(name).Create(t.Context(),
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	remove(t, client, name)
	until(t, client, name, gone)
	t.Logf("took %s", time.Since(began))

	create := client.CoreV1().Namespaces()
	if _, err := create.Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: name},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().ConfigMaps(name).Get(t.Context(), "a",
		metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get the config map of the deleted namespace: got %v, want NotFound", err)
	}
	if _, err := client.CoreV1().Secrets(name).Get(t.Context(), "a",
		metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get the secret of the deleted namespace: got %v, want NotFound", err)
	}
}

func TestWaitsForFinalizersOfContent(t *testing.T) {
	t.Parallel()
	_, client := start(t)
	name := create(t, client, &corev1.Namespace{})
	createConfigMap(t, client, name,
		metav1.ObjectMeta{Name: "held", Finalizers: []string{"example.com/hold"}})
	createConfigMap(t, client, name, metav1.ObjectMeta{Name: "free"})
	remove(t, client, name)
	until(t, client, name,
		says(corev1.NamespaceFinalizersRemaining, corev1.ConditionTrue, "SomeFinalizersRemain"))
	until(t, client, name,
		says(corev1.NamespaceContentRemaining, corev1.ConditionTrue, "SomeResourcesRemain"))
	until(t, client, name,
		says(corev1.NamespaceDeletionContentFailure, corev1.ConditionFalse, "ContentDeleted"))
	until(t, client, name,
		says(corev1.NamespaceDeletionDiscoveryFailure, corev1.ConditionFalse, "ResourcesDiscovered"))
	until(t, client, name,
		says(corev1.NamespaceDeletionGVParsingFailure, corev1.ConditionFalse, "ParsedGroupVersions"))
	if _, err := client.CoreV1().ConfigMaps(name).Get(t.Context(), "free",
		metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get the config map without finalizers: got %v, want NotFound", err)
	}
	_, err := client.CoreV1().ConfigMaps(name).Patch(t.Context(), "held", types.MergePatchType,
		[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	until(t, client, name, gone)
}

func TestLeavesOtherFinalizersOfNamespace(t *testing.T) {
	t.Parallel()
	_, client := start(t)
	name := create(t, client, &corev1.Namespace{
		Spec: corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{"example.com/hold"}},
	})
	remove(t, client, name)
	until(t, client, name, func(ns *corev1.Namespace) bool {
		return ns != nil && len(ns.Spec.Finalizers) == 1 && ns.Spec.Finalizers[0] == "example.com/hold"
	})
	ns, err := client.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ns.Spec.Finalizers = nil
	if _, err := client.CoreV1().Namespaces().Finalize(t.Context(), ns,
		metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, client, name, gone)
}

func TestSurvivesUndiscoverableGroup(t *testing.T) {
	t.Parallel()
	s, client := start(t)
	aggregator, err := aggregatorclient.NewForConfig(s.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	services := aggregator.ApiregistrationV1().APIServices()
	down, err := services.Create(t.Context(), &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: "v1.down.example.com"},
		Spec: apiregistrationv1.APIServiceSpec{
			Group:                 "down.example.com",
			Version:               "v1",
			GroupPriorityMinimum:  100,
			VersionPriority:       100,
			InsecureSkipTLSVerify: true,
			Service: &apiregistrationv1.ServiceReference{
				Namespace: "default",
				Name:      "nowhere",
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	name := create(t, client, &corev1.Namespace{})
	createConfigMap(t, client, name, metav1.ObjectMeta{Name: "a"})
	remove(t, client, name)
	until(t, client, name,
		says(corev1.NamespaceDeletionDiscoveryFailure, corev1.ConditionTrue, "DiscoveryFailed"))
	if _, err := client.CoreV1().ConfigMaps(name).Get(t.Context(), "a",
		metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get the config map, whose group is up: got %v, want NotFound", err)
	}
	if err := services.Delete(t.Context(), down.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, client, name, gone)
}
