package garbagecollector_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest"
)

// patience is far longer than anything here takes.
const patience = 30 * time.Second

func TestMain(m *testing.M) {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	os.Exit(m.Run())
}

// kind is a kind of the tests, with its resource.
type kind struct {
	schema.GroupVersionResource
	name       string
	namespaced bool
}

var (
	configMaps = kind{corev1.SchemeGroupVersion.WithResource("configmaps"), "ConfigMap", true}
	services   = kind{corev1.SchemeGroupVersion.WithResource("services"), "Service", true}
	nodes      = kind{corev1.SchemeGroupVersion.WithResource("nodes"), "Node", false}
	roles      = kind{rbacv1.SchemeGroupVersion.WithResource("clusterroles"), "ClusterRole", false}
	namespaces = kind{corev1.SchemeGroupVersion.WithResource("namespaces"), "Namespace", false}
)

// custom returns a custom kind in a group.
func custom(group string) kind {
	return kind{
		schema.GroupVersionResource{Group: group, Version: "v1", Resource: "widgets"}, "Widget", true,
	}
}

// cluster is a control plane with a client and a namespace.
type cluster struct {
	testing.TB
	server    *server.Server
	client    dynamic.Interface
	namespace string
}

func start(t testing.TB, configure ...func(*server.Options)) *cluster {
	return use(t, servertest.Run(t, configure...), "default")
}

func use(t testing.TB, s *server.Server, namespace string) *cluster {
	t.Helper()
	return &cluster{t, s, clientOf(t, s.RESTConfig()), namespace}
}

func clientOf(t testing.TB, config *rest.Config) dynamic.Interface {
	t.Helper()
	client, err := dynamic.NewForConfig(config)
	ok(t, err)
	return client
}

// in returns the cluster with another namespace, which it creates.
func (c *cluster) in(namespace string) *cluster {
	c.Helper()
	c.create(namespaces, namespace)
	other := *c
	other.namespace = namespace
	return &other
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) objects(k kind) dynamic.ResourceInterface {
	if !k.namespaced {
		return c.client.Resource(k.GroupVersionResource)
	}
	return c.client.Resource(k.GroupVersionResource).Namespace(c.namespace)
}

// option changes an object before it is created.
type option func(*unstructured.Unstructured)

// owned adds an owner.
func owned(by *unstructured.Unstructured, block bool) option {
	return func(o *unstructured.Unstructured) {
		o.SetOwnerReferences(append(o.GetOwnerReferences(), metav1.OwnerReference{
			APIVersion: by.GetAPIVersion(), Kind: by.GetKind(), Name: by.GetName(), UID: by.GetUID(),
			BlockOwnerDeletion: &block,
		}))
	}
}

// held adds a finalizer that nobody removes.
func held(o *unstructured.Unstructured) { o.SetFinalizers([]string{"example.com/held"}) }

func (c *cluster) create(k kind, name string, options ...option) *unstructured.Unstructured {
	c.Helper()
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(k.GroupVersion().WithKind(k.name))
	o.SetName(name)
	if k == services {
		o.Object["spec"] = map[string]any{"ports": []any{map[string]any{"port": int64(80)}}}
	}
	for _, option := range options {
		option(o)
	}
	made, err := c.objects(k).Create(c.Context(), o, metav1.CreateOptions{})
	ok(c, err)
	return made
}

func (c *cluster) get(k kind, name string) *unstructured.Unstructured {
	c.Helper()
	o, err := c.objects(k).Get(c.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	ok(c, err)
	return o
}

func (c *cluster) delete(k kind, name string, policy metav1.DeletionPropagation) {
	c.Helper()
	ok(c, c.objects(k).Delete(c.Context(), name, metav1.DeleteOptions{PropagationPolicy: &policy}))
}

// let removes the finalizer of held.
func (c *cluster) let(k kind, name string) {
	c.Helper()
	_, err := c.objects(k).Patch(c.Context(), name, types.JSONPatchType,
		[]byte(`[{"op":"remove","path":"/metadata/finalizers/0"}]`), metav1.PatchOptions{})
	ok(c, err)
}

func (c *cluster) eventually(what string, done func() bool) {
	c.Helper()
	err := wait.PollUntilContextTimeout(c.Context(), 5*time.Millisecond, patience, true,
		func(context.Context) (bool, error) { return done(), nil })
	if err != nil {
		c.Fatalf("%s: %v", what, err)
	}
}

func (c *cluster) gone(k kind, names ...string) {
	c.Helper()
	for _, name := range names {
		c.eventually(fmt.Sprint(k.Resource, " ", name, " is gone"), func() bool {
			return c.get(k, name) == nil
		})
	}
}

func (c *cluster) deleting(k kind, names ...string) {
	c.Helper()
	for _, name := range names {
		c.eventually(fmt.Sprint(k.Resource, " ", name, " is being deleted"), func() bool {
			o := c.get(k, name)
			return o != nil && o.GetDeletionTimestamp() != nil
		})
	}
}

// exist fails the test if an object does not exist or is being deleted. To give the collector the
// opportunity to be wrong, it first waits until the collector has deleted something else.
func (c *cluster) exist(k kind, names ...string) {
	c.Helper()
	owner := c.create(configMaps, "something-else")
	c.create(configMaps, "and-its-dependent", owned(owner, true))
	c.delete(configMaps, owner.GetName(), metav1.DeletePropagationForeground)
	c.gone(configMaps, owner.GetName(), "and-its-dependent")
	for _, name := range names {
		if o := c.get(k, name); o == nil || o.GetDeletionTimestamp() != nil {
			c.Errorf("%s %s: got %v, want it to stay", k.Resource, name, o)
		}
	}
}

// seen waits until the collector has seen all objects of a kind that exist. It sees those of one
// kind in the order of their changes, so it waits until the collector has deleted one more. Between
// objects of different servers there is no order.
func (c *cluster) seen(k kind) {
	c.Helper()
	owner := c.create(configMaps, "owner-of-last")
	c.delete(configMaps, owner.GetName(), background)
	c.create(k, "last", owned(owner, true))
	c.gone(k, "last")
}

// owners returns the names of an object's owners.
func (c *cluster) owners(k kind, name string) []string {
	c.Helper()
	o := c.get(k, name)
	if o == nil {
		c.Fatalf("%s %s is gone", k.Resource, name)
	}
	var names []string
	for _, r := range o.GetOwnerReferences() {
		names = append(names, r.Name)
	}
	return names
}

// ownedBy waits until an object has the owners.
func (c *cluster) ownedBy(k kind, name string, owners ...string) {
	c.Helper()
	c.eventually(fmt.Sprint(k.Resource, " ", name, " is owned by ", owners), func() bool {
		return slices.Equal(c.owners(k, name), owners)
	})
}

// define creates the definition of widgets in a group.
func (c *cluster) define(group string) kind {
	c.Helper()
	servertest.CRDs(c, c.server, servertest.Objects(&apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Kind: "Widget"},
			Scope: apiextensionsv1.NamespaceScoped,
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{
					OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"},
				},
			}},
		},
	}))
	return custom(group)
}
