package looptest

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
	"github.com/kinproc/kinproc/server/servertest"
)

const (
	background = metav1.DeletePropagationBackground
	foreground = metav1.DeletePropagationForeground
	orphan     = metav1.DeletePropagationOrphan
)

// garbageKind is a kind of the tests, with its resource.
type garbageKind struct {
	schema.GroupVersionResource
	name       string
	namespaced bool
}

// garbage is a namespace in which the collector works.
type garbage struct {
	testing.TB
	server    *server.Server // nil if it is the shared one
	client    dynamic.Interface
	namespace string

	configMaps, services, nodes, roles, namespaces, definitions, apiServices garbageKind
}

func startGarbageCollector(t testing.TB, configure ...func(*server.Options)) *garbage {
	t.Helper()
	s := servertest.Run(t, configure...)
	c := garbageIn(t, s.RESTConfig(), workloadtest.Namespace)
	c.server = s
	return c
}

func garbageCollectorShared(t *testing.T) *garbage {
	t.Helper()
	s, namespace := servertest.Shared(t)
	return garbageIn(t, s.RESTConfig(), namespace)
}

func garbageIn(t testing.TB, config *rest.Config, namespace string) *garbage {
	t.Helper()
	core := corev1.SchemeGroupVersion.WithResource
	return &garbage{
		TB: t, client: workloadtest.Must(dynamic.NewForConfig(config))(t), namespace: namespace,
		configMaps: garbageKind{core("configmaps"), "ConfigMap", true},
		services:   garbageKind{core("services"), "Service", true},
		nodes:      garbageKind{core("nodes"), "Node", false},
		namespaces: garbageKind{core("namespaces"), "Namespace", false},
		roles: garbageKind{
			rbacv1.SchemeGroupVersion.WithResource("clusterroles"), "ClusterRole", false,
		},
		definitions: garbageKind{
			apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions"),
			"CustomResourceDefinition", false,
		},
		apiServices: garbageKind{
			apiregistrationv1.SchemeGroupVersion.WithResource("apiservices"), "APIService", false,
		},
	}
}

// in returns the control plane with another namespace, which it creates.
func (c *garbage) in(namespace string) *garbage {
	c.Helper()
	c.create(c.namespaces, namespace)
	other := *c
	other.namespace = namespace
	return &other
}

func (c *garbage) objects(k garbageKind) dynamic.ResourceInterface {
	if !k.namespaced {
		return c.client.Resource(k.GroupVersionResource)
	}
	return c.client.Resource(k.GroupVersionResource).Namespace(c.namespace)
}

// garbageOption changes an object before it is created.
type garbageOption func(*unstructured.Unstructured)

// owned adds an owner.
func (c *garbage) owned(by *unstructured.Unstructured, block bool) garbageOption {
	return func(o *unstructured.Unstructured) {
		o.SetOwnerReferences(append(o.GetOwnerReferences(), metav1.OwnerReference{
			APIVersion: by.GetAPIVersion(), Kind: by.GetKind(), Name: by.GetName(), UID: by.GetUID(),
			BlockOwnerDeletion: &block,
		}))
	}
}

// held adds a finalizer that nobody removes.
func (c *garbage) held(o *unstructured.Unstructured) {
	o.SetFinalizers([]string{"example.com/held"})
}

func (c *garbage) create(
	k garbageKind, name string, options ...garbageOption,
) *unstructured.Unstructured {
	c.Helper()
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(k.GroupVersion().WithKind(k.name))
	o.SetName(name)
	if k == c.services {
		o.Object["spec"] = map[string]any{"ports": []any{map[string]any{"port": int64(80)}}}
	}
	for _, option := range options {
		option(o)
	}
	made, err := c.objects(k).Create(c.Context(), o, metav1.CreateOptions{})
	workloadtest.OK(c, err)
	return made
}

func (c *garbage) get(k garbageKind, name string) *unstructured.Unstructured {
	c.Helper()
	o, err := c.objects(k).Get(c.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	workloadtest.OK(c, err)
	return o
}

func (c *garbage) delete(k garbageKind, name string, policy metav1.DeletionPropagation) {
	c.Helper()
	workloadtest.OK(c, c.objects(k).Delete(c.Context(), name,
		metav1.DeleteOptions{PropagationPolicy: &policy}))
}

// let removes the finalizer of held.
func (c *garbage) let(k garbageKind, name string) {
	c.Helper()
	_, err := c.objects(k).Patch(c.Context(), name, types.JSONPatchType,
		[]byte(`[{"op":"remove","path":"/metadata/finalizers/0"}]`), metav1.PatchOptions{})
	workloadtest.OK(c, err)
}

func (c *garbage) eventually(what string, done func() bool) {
	c.Helper()
	workloadtest.Until(c, func(context.Context) string {
		if done() {
			return ""
		}
		return "not so: " + what
	})
}

func (c *garbage) gone(k garbageKind, names ...string) {
	c.Helper()
	for _, name := range names {
		c.eventually(fmt.Sprint(k.Resource, " ", name, " is gone"), func() bool {
			return c.get(k, name) == nil
		})
	}
}

func (c *garbage) deleting(k garbageKind, names ...string) {
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
func (c *garbage) exist(k garbageKind, names ...string) {
	c.Helper()
	owner := c.create(c.configMaps, "something-else")
	c.create(c.configMaps, "and-its-dependent", c.owned(owner, true))
	c.delete(c.configMaps, owner.GetName(), metav1.DeletePropagationForeground)
	c.gone(c.configMaps, owner.GetName(), "and-its-dependent")
	for _, name := range names {
		if o := c.get(k, name); o == nil || o.GetDeletionTimestamp() != nil {
			c.Errorf("%s %s: got %v, want it to stay", k.Resource, name, o)
		}
	}
}

// seen waits until the collector has seen all objects of a kind that exist. It sees those of one
// kind in the order of their changes, so it waits until the collector has deleted one more. Between
// objects of different servers there is no order.
func (c *garbage) seen(k garbageKind) {
	c.Helper()
	owner := c.create(c.configMaps, "owner-of-last")
	c.delete(c.configMaps, owner.GetName(), background)
	c.create(k, "last", c.owned(owner, true))
	c.gone(k, "last")
}

// owners returns the names of an object's owners.
func (c *garbage) owners(k garbageKind, name string) []string {
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
func (c *garbage) ownedBy(k garbageKind, name string, owners ...string) {
	c.Helper()
	c.eventually(fmt.Sprint(k.Resource, " ", name, " is owned by ", owners), func() bool {
		return slices.Equal(c.owners(k, name), owners)
	})
}

// define creates the definition of widgets in a group.
func (c *garbage) define(group string) garbageKind {
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
	return garbageKind{
		schema.GroupVersionResource{Group: group, Version: "v1", Resource: "widgets"}, "Widget", true,
	}
}
