package apitest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest"
)

// systemObjectBack is the time within which kube-apiserver recreates the service default/kubernetes
// or the default ServiceCIDR. It is that of a bubble, in which work takes no time.
const systemObjectBack = 10 * time.Second

// TestSystemObjectsComeBack deletes objects that every cluster has and checks that they are
// recreated.
func TestSystemObjectsComeBack(t *testing.T) {
	t.Parallel()
	for name, configure := range map[string]func(*server.Options){
		"controllers":    func(*server.Options) {},
		"no controllers": servertest.WithoutControllers,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { systemObjectsComeBack(t, configure) })
		})
	}
}

func systemObjectsComeBack(t *testing.T, configure func(*server.Options)) {
	s := servertest.Run(t, servertest.InBubble, configure)
	client := dynamic.NewForConfigOrDie(s.RESTConfig())
	objects := []systemObject{
		{"", "v1", "services", metav1.NamespaceDefault, "kubernetes"},
		{"", "v1", "endpoints", metav1.NamespaceDefault, "kubernetes"},
		{"discovery.k8s.io", "v1", "endpointslices", metav1.NamespaceDefault, "kubernetes"},
		{"networking.k8s.io", "v1", "servicecidrs", "", "kubernetes"},
		{"apiregistration.k8s.io", "v1", "apiservices", "", "v1."},
		{"apiregistration.k8s.io", "v1", "apiservices", "", "v1.apps"},
		{"apiregistration.k8s.io", "v1", "apiservices", "", "v1.apiextensions.k8s.io"},
	}
	var o server.Options
	if configure(&o); len(o.Controllers) == 0 { // without controllers, namespaces are never removed
		objects = append(objects, systemObject{"", "v1", "namespaces", "", corev1.NamespaceNodeLease})
	}
	// All objects are read before the first deletion: endpoints are deleted together with their
	// service.
	identities := map[systemObject]types.UID{}
	for _, o := range objects {
		if uid, ok := o.identity(t, client); ok {
			identities[o] = uid
		}
	}
	var all sync.WaitGroup
	for o, uid := range identities {
		all.Go(func() { o.deleteAndAwait(t, client, uid) })
	}
	all.Wait()
}

// TestSystemObjectServiceCIDR deletes the ServiceCIDR that service addresses are allocated
// from.
func TestSystemObjectServiceCIDR(t *testing.T) {
	t.Parallel()
	for name, configure := range map[string]func(*server.Options){
		"controllers":    func(*server.Options) {},
		"no controllers": servertest.WithoutControllers,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { systemObjectServiceCIDR(t, configure) })
		})
	}
}

func systemObjectServiceCIDR(t *testing.T, configure func(*server.Options)) {
	s := servertest.Run(t, servertest.InBubble, configure)
	cidr, objects := systemObject{"networking.k8s.io", "v1", "servicecidrs", "", "kubernetes"},
		dynamic.NewForConfigOrDie(s.RESTConfig())
	uid, _ := cidr.identity(t, objects)
	cidr.deleteAndAwait(t, objects, uid)
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "s"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}
	client := kubernetes.NewForConfigOrDie(s.RESTConfig())
	service, err := client.CoreV1().Services(metav1.NamespaceDefault).Create(t.Context(), service,
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if service.Spec.ClusterIP == "" {
		t.Error("the service has no address")
	}
}

// TestSystemObjectNamespaces deletes the namespaces whose deletion kube-apiserver forbids.
func TestSystemObjectNamespaces(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, servertest.WithoutControllers)
	client := kubernetes.NewForConfigOrDie(s.RESTConfig())
	for _, name := range []string{
		metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic,
	} {
		if err := client.CoreV1().Namespaces().Delete(t.Context(), name,
			metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("delete namespace %s: got %v, want Forbidden", name, err)
		}
	}
}

// TestSystemObjectsAreSpecial checks the special behavior of the system's objects.
func TestSystemObjectsAreSpecial(t *testing.T) {
	t.Parallel()
	s, _ := shared(t)
	ctx := t.Context()
	client := kubernetes.NewForConfigOrDie(s.RESTConfig())
	if err := client.SchedulingV1().PriorityClasses().Delete(ctx, "system-node-critical",
		metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("delete a system priority class: got %v, want Forbidden", err)
	}
	schemas := client.FlowcontrolV1().RESTClient().Get().Resource("flowschemas")
	data, err := schemas.SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").
		Do(ctx).Raw()
	if err != nil {
		t.Fatal(err)
	}
	var table metav1.Table
	if err := json.Unmarshal(data, &table); err != nil {
		t.Fatal(err)
	}
	first, last := table.Rows[0].Cells[0], table.Rows[len(table.Rows)-1].Cells[0]
	if first != "exempt" || last != "catch-all" {
		t.Errorf("flow schemas are listed from %v to %v, want them sorted by matching precedence",
			first, last)
	}
}

type systemObject struct{ group, version, resource, namespace, name string }

func (o systemObject) client(client dynamic.Interface) dynamic.ResourceInterface {
	return client.Resource(schema.GroupVersionResource{
		Group:    o.group,
		Version:  o.version,
		Resource: o.resource,
	}).Namespace(o.namespace)
}

// identity returns the object's UID. Endpoints exist only on a host with an address that other
// hosts can reach.
func (o systemObject) identity(t *testing.T, client dynamic.Interface) (types.UID, bool) {
	t.Helper()
	obj, err := o.client(client).Get(t.Context(), o.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && strings.HasPrefix(o.resource, "endpoint") {
		return "", false
	}
	if err != nil {
		t.Fatal(err)
	}
	return obj.GetUID(), true
}

// deleteAndAwait deletes the object and waits until a new one exists that is not being deleted.
func (o systemObject) deleteAndAwait(t *testing.T, client dynamic.Interface, uid types.UID) {
	t.Helper()
	objects := o.client(client)
	began := time.Now()
	if err := objects.Delete(t.Context(), o.name, metav1.DeleteOptions{}); err != nil &&
		!apierrors.IsNotFound(err) {
		t.Error(err)
		return
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), systemObjectBack, errors.New("timed out"))
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		after, err := objects.Get(ctx, o.name, metav1.GetOptions{})
		if err == nil && after.GetUID() != uid && after.GetDeletionTimestamp() == nil {
			t.Logf("recreated after %v", time.Since(began).Round(time.Millisecond))
			return
		}
		select {
		case <-ctx.Done():
			t.Errorf("%s %s was not recreated: %v; %s", o.resource, o.name, context.Cause(ctx),
				systemObjectState(after, err))
			return
		case <-tick.C:
		}
	}
}

func systemObjectState(obj *unstructured.Unstructured, err error) string {
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("uid %s, deleted at %v", obj.GetUID(), obj.GetDeletionTimestamp())
}
