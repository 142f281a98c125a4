package looptest

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/controllers/cluster/namespaces"
	"github.com/kinproc/kinproc/server/internal/controllers/cluster/rootca"
	"github.com/kinproc/kinproc/server/internal/controllers/cluster/serviceaccounts"
	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
	"github.com/kinproc/kinproc/server/servertest"
)

// perNamespaceCluster is a control plane with the loops of service accounts, root certificates and
// namespaces.
type perNamespaceCluster struct {
	*testing.T
	servertest.API
	client kubernetes.Interface
}

func perNamespaceConnect(t *testing.T, api servertest.API) perNamespaceCluster {
	t.Helper()
	client, err := kubernetes.NewForConfig(api.RESTConfig())
	workloadtest.OK(t, err)
	return perNamespaceCluster{t, api, client}
}

func (c perNamespaceCluster) namespace(names ...string) {
	c.Helper()
	for _, name := range names {
		workloadtest.Must(c.client.CoreV1().Namespaces().Create(c.Context(), &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: name},
		}, metav1.CreateOptions{}))(c.T)
	}
}

func (c perNamespaceCluster) delete(namespace string) {
	c.Helper()
	workloadtest.OK(c.T, c.client.CoreV1().Namespaces().Delete(c.Context(), namespace,
		metav1.DeleteOptions{}))
}

// spoil deletes the service account and changes the config map.
func (c perNamespaceCluster) spoil(namespace string) {
	c.Helper()
	core := c.client.CoreV1()
	workloadtest.OK(c.T, core.ServiceAccounts(namespace).Delete(c.Context(), serviceaccounts.Account,
		metav1.DeleteOptions{}))
	workloadtest.Must(core.ConfigMaps(namespace).Patch(c.Context(), rootca.ConfigMap,
		types.MergePatchType, []byte(`{"data":{"ca.crt":"others","more":""}}`),
		metav1.PatchOptions{}))(c.T)
}

// await waits until the namespaces have their service accounts and config maps.
func (c perNamespaceCluster) await(names ...string) {
	c.Helper()
	core := c.client.CoreV1()
	for _, name := range names {
		workloadtest.Until(c.T, func(ctx context.Context) string {
			if _, err := core.ServiceAccounts(name).Get(ctx, serviceaccounts.Account,
				metav1.GetOptions{}); err != nil {
				return err.Error()
			}
			m, err := core.ConfigMaps(name).Get(ctx, rootca.ConfigMap, metav1.GetOptions{})
			if err != nil {
				return err.Error()
			}
			if len(m.Data) != 1 || m.Data[rootca.Key] != string(c.RESTConfig().CAData) {
				return fmt.Sprintf("the config map of %s has %v", name, m.Data)
			}
			return ""
		})
	}
}

// awaitGone waits until a namespace does not exist.
func (c perNamespaceCluster) awaitGone(name string) {
	c.Helper()
	workloadtest.Until(c.T, func(ctx context.Context) string {
		_, err := c.client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Sprintf("get the namespace %s: %v", name, err)
		}
		return ""
	})
}

// TestPerNamespaceRestart changes namespaces and what is in them while the loops do not run.
func TestPerNamespaceRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	run := func(configure ...func(*server.Options)) (*server.Server, perNamespaceCluster) {
		t.Helper()
		s := servertest.Run(t, append([]func(*server.Options){func(o *server.Options) {
			o.DataDir = dir
			o.Controllers = []string{serviceaccounts.Name, rootca.Name, namespaces.Name}
		}}, configure...)...)
		return s, perNamespaceConnect(t, s)
	}
	s, c := run()
	c.namespace("kept", "recreated")
	c.await("kept", "recreated")
	workloadtest.OK(t, s.Stop(t.Context()))

	s, c = run(servertest.WithoutControllers)
	c.spoil("kept")
	c.spoil("recreated")
	c.delete("recreated")
	c.namespace("new")
	workloadtest.OK(t, s.Stop(t.Context()))

	_, c = run()
	c.await("kept", "new")
	c.awaitGone("recreated")
	c.namespace("recreated")
	c.await("recreated")
}

// TestPerNamespaceDying keeps a namespace dying until what was in it is gone, and creates it again
// at once.
func TestPerNamespaceDying(t *testing.T) {
	t.Parallel()
	s, dying := servertest.Shared(t)
	c := perNamespaceConnect(t, s)
	c.await(dying)
	core := c.client.CoreV1()
	workloadtest.Must(core.ConfigMaps(dying).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "last", Finalizers: []string{"example.com/wait"}},
	}, metav1.CreateOptions{}))(t)
	c.delete(dying)
	workloadtest.Until(t, func(ctx context.Context) string {
		maps, err := core.ConfigMaps(dying).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		accounts, err := core.ServiceAccounts(dying).List(ctx, metav1.ListOptions{})
		if err != nil || len(maps.Items) != 1 || len(accounts.Items) != 0 {
			return fmt.Sprintf("%d config maps, %d service accounts: %v", len(maps.Items),
				len(accounts.Items), err)
		}
		return ""
	})
	workloadtest.Must(core.ConfigMaps(dying).Patch(t.Context(), "last", types.MergePatchType,
		[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}))(t)
	c.awaitGone(dying)
	c.namespace(dying)
	c.await(dying)
}
