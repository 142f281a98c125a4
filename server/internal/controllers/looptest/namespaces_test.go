package looptest

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
	"github.com/kinproc/kinproc/server/servertest"
)

// namespacesCluster is a control plane whose namespaces a test deletes.
type namespacesCluster struct {
	testing.TB
	kubernetes.Interface
}

func (c namespacesCluster) create(ns *corev1.Namespace) string {
	c.Helper()
	ns.GenerateName = "test-"
	return workloadtest.Must(c.CoreV1().Namespaces().Create(c.Context(), ns,
		metav1.CreateOptions{}))(c).Name
}

func (c namespacesCluster) configMap(namespace string, meta metav1.ObjectMeta) {
	c.Helper()
	workloadtest.Must(c.CoreV1().ConfigMaps(namespace).Create(c.Context(),
		&corev1.ConfigMap{ObjectMeta: meta}, metav1.CreateOptions{}))(c)
}

func (c namespacesCluster) remove(name string) {
	c.Helper()
	workloadtest.OK(c, c.CoreV1().Namespaces().Delete(c.Context(), name, metav1.DeleteOptions{}))
}

// await waits until wanted accepts a namespace. A nil namespace is one that no longer exists.
func (c namespacesCluster) await(name string, wanted func(*corev1.Namespace) bool) {
	c.Helper()
	w, err := c.CoreV1().Namespaces().Watch(c.Context(), metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String(),
	})
	if err != nil {
		c.Fatal(err)
	}
	defer w.Stop()
	if _, err := c.CoreV1().Namespaces().Get(c.Context(), name,
		metav1.GetOptions{}); apierrors.IsNotFound(err) && wanted(nil) {
		return
	}
	const patience = 30 * time.Second
	timeout := time.After(patience)
	var last *corev1.Namespace
	for {
		select {
		case e, ok := <-w.ResultChan():
			if !ok {
				c.Fatal("the watch ended")
			}
			if e.Type == watch.Deleted {
				last = nil
			} else if last, ok = e.Object.(*corev1.Namespace); !ok {
				c.Fatalf("watch: %v", e.Object)
			}
			if wanted(last) {
				return
			}
		case <-timeout:
			c.Fatalf("condition not met after %s: %v", patience, last)
		}
	}
}

func namespaceIsGone(ns *corev1.Namespace) bool { return ns == nil }

// namespaceSays returns a function that reports whether a namespace has a condition with a reason.
func namespaceSays(
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

func TestNamespaceGoesAway(t *testing.T) {
	t.Parallel()
	client, name := shared(t)
	c := namespacesCluster{t, client}
	c.configMap(name, metav1.ObjectMeta{Name: "a"})
	_, err := c.CoreV1().Secrets(name).Create(t.Context(),
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	c.remove(name)
	c.await(name, namespaceIsGone)
	t.Logf("took %s", time.Since(began))

	workloadtest.Must(c.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: name},
	}, metav1.CreateOptions{}))(t)
	if _, err := c.CoreV1().ConfigMaps(name).Get(t.Context(), "a",
		metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get the config map of the deleted namespace: got %v, want NotFound", err)
	}
	if _, err := c.CoreV1().Secrets(name).Get(t.Context(), "a",
		metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get the secret of the deleted namespace: got %v, want NotFound", err)
	}
}

func TestNamespaceWaitsForFinalizersOfContent(t *testing.T) {
	t.Parallel()
	client, name := shared(t)
	c := namespacesCluster{t, client}
	c.configMap(name,
		metav1.ObjectMeta{Name: "held", Finalizers: []string{"example.com/hold"}})
	c.configMap(name, metav1.ObjectMeta{Name: "free"})
	c.remove(name)
	c.await(name,
		namespaceSays(corev1.NamespaceFinalizersRemaining, corev1.ConditionTrue, "SomeFinalizersRemain"))
	c.await(name,
		namespaceSays(corev1.NamespaceContentRemaining, corev1.ConditionTrue, "SomeResourcesRemain"))
	c.await(name,
		namespaceSays(corev1.NamespaceDeletionContentFailure, corev1.ConditionFalse, "ContentDeleted"))
	c.await(name,
		namespaceSays(corev1.NamespaceDeletionDiscoveryFailure, corev1.ConditionFalse,
			"ResourcesDiscovered"))
	c.await(name,
		namespaceSays(corev1.NamespaceDeletionGVParsingFailure, corev1.ConditionFalse,
			"ParsedGroupVersions"))
	if _, err := c.CoreV1().ConfigMaps(name).Get(t.Context(), "free",
		metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get the config map without finalizers: got %v, want NotFound", err)
	}
	_, err := c.CoreV1().ConfigMaps(name).Patch(t.Context(), "held", types.MergePatchType,
		[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.await(name, namespaceIsGone)
}

func TestOtherFinalizersOfNamespaceAreLeft(t *testing.T) {
	t.Parallel()
	client, _ := shared(t)
	c := namespacesCluster{t, client}
	name := c.create(&corev1.Namespace{
		Spec: corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{"example.com/hold"}},
	})
	c.remove(name)
	c.await(name, func(ns *corev1.Namespace) bool {
		return ns != nil && len(ns.Spec.Finalizers) == 1 && ns.Spec.Finalizers[0] == "example.com/hold"
	})
	ns, err := c.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ns.Spec.Finalizers = nil
	if _, err := c.CoreV1().Namespaces().Finalize(t.Context(), ns,
		metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.await(name, namespaceIsGone)
}

func TestNamespacesSurviveUndiscoverableGroup(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t)
	c := namespacesCluster{t, workloadtest.Client(t, s)}
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
	workloadtest.Until(t, func(context.Context) string {
		_, err := c.Discovery().ServerPreferredResources()
		if !discovery.IsGroupDiscoveryFailedError(err) {
			return fmt.Sprintf("all groups can be discovered: %v", err)
		}
		return ""
	})
	name := c.create(&corev1.Namespace{})
	c.configMap(name, metav1.ObjectMeta{Name: "a"})
	c.remove(name)
	c.await(name,
		namespaceSays(corev1.NamespaceDeletionDiscoveryFailure, corev1.ConditionTrue, "DiscoveryFailed"))
	if _, err := c.CoreV1().ConfigMaps(name).Get(t.Context(), "a",
		metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get the config map, whose group is up: got %v, want NotFound", err)
	}
	if err := services.Delete(t.Context(), down.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.await(name, namespaceIsGone)
}
