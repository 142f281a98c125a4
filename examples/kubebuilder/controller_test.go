package kubebuilder

import (
	"context"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kinproc/kinproc/server/servertest"
)

// share returns a client, and a namespace of the test's own.
func share(t *testing.T) (client.Client, string) {
	t.Helper()
	c, namespace := servertest.Shared(t)
	k, err := client.New(c.RESTConfig(), client.Options{Scheme: newScheme()})
	if err != nil {
		t.Fatal(err)
	}
	return k, namespace
}

func memcached(namespace string, size int32) *Memcached {
	return &Memcached{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "sample"},
		Spec:       MemcachedSpec{Size: size},
	}
}

func TestDefault(t *testing.T) {
	t.Parallel()
	k, namespace := share(t)
	m := memcached(namespace, 0)
	if err := k.Create(t.Context(), m); err != nil || m.Spec.Size != 1 {
		t.Errorf("size %d, %v, want 1", m.Spec.Size, err)
	}
}

func TestValidation(t *testing.T) {
	t.Parallel()
	k, namespace := share(t)
	err := k.Create(t.Context(), memcached(namespace, maxSize+1))
	if err == nil || !strings.Contains(err.Error(), "6 is not between 0 and 5") {
		t.Errorf("a size of %d: %v", maxSize+1, err)
	}
}

func TestReconcile(t *testing.T) {
	t.Parallel()
	k, namespace := share(t)
	m := memcached(namespace, 3)
	if err := k.Create(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	awaitReplicas(t, k, m, 3)
	before := m.DeepCopyObject().(client.Object)
	m.Spec.Size = 2
	if err := k.Patch(t.Context(), m, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	awaitReplicas(t, k, m, 2)
}

// awaitReplicas waits until the Deployment of a Memcached has a number of replicas.
func awaitReplicas(t *testing.T, k client.Client, m *Memcached, want int32) {
	t.Helper()
	var d appsv1.Deployment
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, time.Minute, true,
		func(ctx context.Context) (bool, error) {
			err := k.Get(ctx, client.ObjectKeyFromObject(m), &d)
			return err == nil && *d.Spec.Replicas == want, client.IgnoreNotFound(err)
		})
	if err != nil {
		t.Fatalf("no Deployment of %d replicas: %v, the last one is %v", want, err, d.Spec.Replicas)
	}
}
