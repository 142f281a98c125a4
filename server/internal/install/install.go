// Package install puts objects into a control plane and returns when they can be used: when the
// resources of CRDs are served, extension API servers are reached, and webhooks are called.
package install

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/util/retry"
)

// discoveryTimeout limits a request for discovery, as discovery.NewDiscoveryClientForConfig does.
const discoveryTimeout = 32 * time.Second

// Client puts objects into a control plane.
type Client struct {
	Dynamic   dynamic.Interface
	Discovery discovery.DiscoveryInterfaceWithContext

	mapper  *restmapper.DeferredDiscoveryRESTMapper
	manager string
}

// New returns a client that writes under the name of a field manager.
func New(config *rest.Config, manager string) (*Client, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	return NewForClient(config, client, manager)
}

// NewForClient is like New, with an HTTP client for the configuration.
func NewForClient(config *rest.Config, client *http.Client, manager string) (*Client, error) {
	objects, err := dynamic.NewForConfigAndClient(config, client)
	if err != nil {
		return nil, err
	}
	limited := *client
	limited.Timeout = cmp.Or(limited.Timeout, discoveryTimeout)
	served, err := discovery.NewDiscoveryClientForConfigAndClient(config, &limited)
	if err != nil {
		return nil, err
	}
	return &Client{
		Dynamic: objects, Discovery: served, manager: manager,
		mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(served)),
	}, nil
}

// Object is one that was stored.
type Object struct {
	*unstructured.Unstructured
	// Created is whether it did not exist before. Objects of Apply do not say.
	Created bool

	resource dynamic.ResourceInterface
}

// String returns how messages name the object.
func (o Object) String() string { return named(o.Unstructured) }

// Delete deletes the object, unless it is gone, or has been replaced by another one of its name.
func (o Object) Delete(ctx context.Context) error {
	err := o.resource.Delete(ctx, o.GetName(), metav1.DeleteOptions{
		Preconditions:     metav1.NewUIDPreconditions(string(o.GetUID())),
		PropagationPolicy: new(metav1.DeletePropagationBackground),
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// named returns how messages name an object.
func named(u *unstructured.Unstructured) string {
	name := u.GetName()
	if name == "" {
		name = u.GetGenerateName() + "*"
	}
	if u.GetNamespace() != "" {
		name = u.GetNamespace() + "/" + name
	}
	return cmp.Or(u.GetKind(), "object") + " " + name
}

// Create creates the objects of files one after the other. Those that exist are changed by a
// server-side apply. What belongs in a namespace and names none gets the given one, or default if
// that is empty. The resources of CRDs are served before what follows is created, and when Create
// returns. The error names the object and, if the object was not stored, its file, if that has a
// name.
//
// With an error, the objects are those that were stored before.
func (c *Client) Create(
	ctx context.Context, namespace string, files ...File,
) ([]Object, error) {
	return c.each(ctx, namespace, files, c.CreateIn)
}

// Apply is like Create, but changes all objects by server-side apply.
func (c *Client) Apply(
	ctx context.Context, namespace string, files ...File,
) ([]Object, error) {
	return c.each(ctx, namespace, files, c.apply)
}

// putting creates or changes an object.
type putting func(
	context.Context, dynamic.ResourceInterface, *unstructured.Unstructured,
) (Object, error)

func (c *Client) each(
	ctx context.Context, namespace string, files []File, put putting,
) (stored []Object, err error) {
	var definitions []*unstructured.Unstructured // that are not known to be served
	for _, f := range files {
		for _, u := range f.Objects {
			if !isDefinition(u) && len(definitions) > 0 {
				if err := c.awaitServed(ctx, definitions); err != nil {
					return stored, err
				}
				definitions = nil
			}
			o, err := c.put(ctx, namespace, u, put)
			if err != nil {
				return stored, f.wrong(u, err)
			}
			stored = append(stored, o)
			if isDefinition(u) {
				definitions = append(definitions, o.Unstructured)
			}
		}
	}
	return stored, c.awaitServed(ctx, definitions)
}

func (c *Client) put(
	ctx context.Context, namespace string, u *unstructured.Unstructured, put putting,
) (Object, error) {
	resource, err := c.resourceFor(u, namespace)
	if err != nil {
		return Object{}, err
	}
	return put(ctx, resource, u)
}

// resourceFor returns the resource of an object. It sets the object's namespace if the object needs
// one and has none.
func (c *Client) resourceFor(
	u *unstructured.Unstructured, namespace string,
) (dynamic.ResourceInterface, error) {
	if !hasKind(u) {
		return nil, errKindless
	}
	kind := u.GroupVersionKind()
	mapping, err := c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		return nil, fmt.Errorf("there is no such kind in %s; put its CRD before it: %w",
			kind.GroupVersion(), err)
	}
	if err != nil {
		return nil, err
	}
	resource := c.Dynamic.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		return resource, nil
	}
	if u.GetNamespace() == "" {
		if namespace == "" {
			namespace = metav1.NamespaceDefault
		}
		u.SetNamespace(namespace)
	}
	return resource.Namespace(u.GetNamespace()), nil
}

// CreateIn creates an object of a resource. If it exists, it is changed by a server-side apply.
func (c *Client) CreateIn(
	ctx context.Context, resource dynamic.ResourceInterface, u *unstructured.Unstructured,
) (Object, error) {
	stored, err := resource.Create(ctx, u, metav1.CreateOptions{FieldManager: c.manager})
	if apierrors.IsAlreadyExists(err) {
		return c.apply(ctx, resource, u)
	}
	return Object{stored, true, resource}, err
}

func (c *Client) apply(
	ctx context.Context, resource dynamic.ResourceInterface, u *unstructured.Unstructured,
) (Object, error) {
	u.SetManagedFields(nil) // a server-side apply refuses them
	u.SetResourceVersion("")
	stored, err := resource.Apply(ctx, u.GetName(), u,
		metav1.ApplyOptions{FieldManager: c.manager, Force: true})
	return Object{stored, false, resource}, err
}

// replace creates an object, or replaces the one that exists.
func (c *Client) replace(
	ctx context.Context, resource dynamic.ResourceInterface, u *unstructured.Unstructured,
) (Object, error) {
	stored, err := resource.Create(ctx, u, metav1.CreateOptions{FieldManager: c.manager})
	created := err == nil
	if apierrors.IsAlreadyExists(err) {
		err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
			present, err := resource.Get(ctx, u.GetName(), metav1.GetOptions{})
			if err != nil {
				return err
			}
			u.SetResourceVersion(present.GetResourceVersion())
			stored, err = resource.Update(ctx, u, metav1.UpdateOptions{FieldManager: c.manager})
			return err
		})
	}
	if err != nil {
		return Object{}, fmt.Errorf("%s: %w", named(u), err)
	}
	return Object{stored, created, resource}, nil
}
