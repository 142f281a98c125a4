package looptest

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/kinproc/kinproc/server/internal/controllers/cluster/rootca"
	"github.com/kinproc/kinproc/server/internal/controllers/cluster/serviceaccounts"
	"github.com/kinproc/kinproc/server/internal/controllers/loop"
	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
	"github.com/kinproc/kinproc/server/servertest"
)

// perNamespaceAwait waits for an event that wanted accepts.
func perNamespaceAwait(t *testing.T, w watch.Interface, wanted func(watch.Event) bool) {
	t.Helper()
	defer w.Stop()
	timeout := time.After(30 * time.Second)
	for {
		select {
		case e, ok := <-w.ResultChan():
			if !ok {
				t.Fatal("the watch ended")
			}
			if wanted(e) {
				return
			}
		case <-timeout:
			t.Fatal("timed out waiting for the event")
		}
	}
}

// TestPerNamespaceAlone runs the two controllers that use package pernamespace on a control plane
// without other controllers.
func TestPerNamespaceAlone(t *testing.T) {
	t.Parallel()
	client := workloadtest.Client(t, servertest.Run(t, servertest.WithoutControllers))
	ctx := t.Context()
	for _, l := range []loop.Loop{serviceaccounts.Loop(), rootca.Loop([]byte("certificates"))} {
		d, _ := workloadtest.Dependencies(client)
		d.Named = func(example runtime.Object, _ string) cache.SharedIndexInformer {
			if _, ok := example.(*corev1.ServiceAccount); ok {
				return d.Informer(&corev1.ServiceAccount{})
			}
			return d.Informer(&corev1.ConfigMap{})
		}
		workloadtest.Start(t, d, l)
	}

	ns, err := client.CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	named := metav1.SingleObject(metav1.ObjectMeta{Name: serviceaccounts.Account})
	account := func() watch.Interface {
		w, err := client.CoreV1().ServiceAccounts(ns.Name).Watch(ctx, named)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	var uid types.UID
	perNamespaceAwait(t, account(), func(e watch.Event) bool {
		if e.Type == watch.Added {
			uid = e.Object.(*corev1.ServiceAccount).UID
		}
		return e.Type == watch.Added
	})
	again := account()
	if err := client.CoreV1().ServiceAccounts(ns.Name).Delete(ctx, "default",
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	perNamespaceAwait(t, again, func(e watch.Event) bool {
		return e.Type == watch.Added && e.Object.(*corev1.ServiceAccount).UID != uid
	})

	named = metav1.SingleObject(metav1.ObjectMeta{Name: rootca.ConfigMap})
	configMap := func() watch.Interface {
		w, err := client.CoreV1().ConfigMaps(ns.Name).Watch(ctx, named)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	whole := func(e watch.Event) bool {
		m, ok := e.Object.(*corev1.ConfigMap)
		return ok && e.Type != watch.Deleted && m.Data["ca.crt"] == "certificates" && len(m.Data) == 1 &&
			m.Annotations["kubernetes.io/description"] != ""
	}
	perNamespaceAwait(t, configMap(), whole)
	repaired := configMap()
	spoilt := []byte(`{"data":{"ca.crt":"others","more":""}}`)
	if _, err := client.CoreV1().ConfigMaps(ns.Name).Patch(ctx, rootca.ConfigMap, types.MergePatchType,
		spoilt, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	seen := false
	perNamespaceAwait(t, repaired, func(e watch.Event) bool {
		seen = seen || !whole(e)
		return seen && whole(e)
	})
}
