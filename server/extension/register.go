package extension

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistration "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"

	"github.com/kinproc/kinproc/server/internal/install"
)

// fieldManager owns what Register applies.
const fieldManager = "kinproc-extension"

// Register waits until the server of a registration is ready, applies the objects to the control
// plane of config, and waits until the control plane reaches the server and has the versions in its
// discovery and its OpenAPI documents. If ctx ends before, the error tells what is missing.
//
// It does not take over a group and version that the control plane serves itself, or that another
// server serves.
func Register(ctx context.Context, config *rest.Config, r *Registration) error {
	c, err := newRegistrar(config)
	if err != nil {
		return fmt.Errorf("register: %w", err)
	}
	if err := c.register(ctx, r); err != nil {
		return fmt.Errorf("register: %w", err)
	}
	return nil
}

// Unregister deletes the objects of a registration from the control plane of config, if they exist,
// and waits until the control plane sends the server no more requests and its discovery has the
// versions no longer. It leaves objects that have come to be those of another server. If ctx ends
// before, the error tells what is left.
func Unregister(ctx context.Context, config *rest.Config, r *Registration) error {
	c, err := newRegistrar(config)
	if err != nil {
		return fmt.Errorf("unregister: %w", err)
	}
	var errs []error
	for _, a := range r.APIServices {
		if err := c.remove(ctx, a); err != nil {
			errs = append(errs, err)
			continue
		}
		err := install.Until(ctx, func(ctx context.Context) error { return c.used(ctx, a) })
		if err != nil {
			errs = append(errs, fmt.Errorf("APIService %s: %w", a.Name, err))
		}
	}
	for _, obj := range slices.Backward(r.objects()) {
		if _, ok := obj.(*apiregistrationv1.APIService); !ok {
			errs = append(errs, c.remove(ctx, obj))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("unregister: %w", err)
	}
	return nil
}

// registrar applies registrations.
type registrar struct {
	*install.Client
	apiServices apiregistration.APIServiceInterface
}

func newRegistrar(config *rest.Config) (*registrar, error) {
	client, err := install.New(config, fieldManager)
	if err != nil {
		return nil, err
	}
	registered, err := apiregistration.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &registrar{client, registered.APIServices()}, nil
}

func (c *registrar) register(ctx context.Context, r *Registration) error {
	// A server that is not ready would be noticed as unavailable.
	if r.ready != nil {
		select {
		case <-r.ready:
		case <-ctx.Done():
			return fmt.Errorf("the extension API server is not ready: %w", ctx.Err())
		}
	}
	for _, a := range r.APIServices {
		if err := c.free(ctx, a); err != nil {
			return err
		}
	}
	for _, obj := range r.objects() {
		u, err := wanted(obj)
		if err != nil {
			return err
		}
		if _, err := c.resource(u).Apply(ctx, u.GetName(), u, metav1.ApplyOptions{
			FieldManager: fieldManager, Force: true,
		}); err != nil {
			return fmt.Errorf("apply %s %s: %w", u.GetKind(), u.GetName(), err)
		}
	}
	for _, a := range r.APIServices {
		if err := c.AwaitAPIService(ctx, versionOf(a)); err != nil {
			return err
		}
		err := install.Until(ctx, func(ctx context.Context) error { return c.documented(ctx, a) })
		if err != nil {
			return fmt.Errorf("APIService %s: %w", a.Name, err)
		}
	}
	return nil
}

// wanted returns obj for server-side apply and as a manifest: without its status and without fields
// that only the server sets.
func wanted(obj runtime.Object) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, fmt.Errorf("convert %T: %w", obj, err)
	}
	u := &unstructured.Unstructured{Object: content}
	unstructured.RemoveNestedField(content, "status")
	unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
	return u, nil
}

func (c *registrar) resource(u *unstructured.Unstructured) dynamic.ResourceInterface {
	plural, _ := meta.UnsafeGuessKindToResource(u.GroupVersionKind())
	if u.GetNamespace() == "" {
		return c.Dynamic.Resource(plural)
	}
	return c.Dynamic.Resource(plural).Namespace(u.GetNamespace())
}

// apiService returns a stored APIService, or nil if there is none.
func (c *registrar) apiService(
	ctx context.Context, name string,
) (*apiregistrationv1.APIService, error) {
	stored, err := c.apiServices.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read APIService %s: %w", name, err)
	}
	return stored, nil
}

// free returns an error if a version is served by something else.
func (c *registrar) free(ctx context.Context, a *apiregistrationv1.APIService) error {
	stored, err := c.apiService(ctx, a.Name)
	if err != nil || stored == nil {
		return err
	}
	switch at := stored.Spec.Service; {
	case at == nil:
		return fmt.Errorf("the control plane serves %s/%s itself: name another group, "+
			"or remove its CRDs", a.Spec.Group, a.Spec.Version)
	case !sameService(stored, a):
		return fmt.Errorf("APIService %s is for another server, at service %s/%s: unregister it first",
			a.Name, at.Namespace, at.Name)
	}
	return nil
}

// sameService reports whether two APIServices are for the same server.
func sameService(a, b *apiregistrationv1.APIService) bool {
	return a.Spec.Service != nil && a.Spec.Service.Namespace == b.Spec.Service.Namespace &&
		a.Spec.Service.Name == b.Spec.Service.Name
}

func versionOf(a *apiregistrationv1.APIService) schema.GroupVersion {
	return schema.GroupVersion{Group: a.Spec.Group, Version: a.Spec.Version}
}

// documented returns an error unless the OpenAPI documents have the version of an APIService.
func (c *registrar) documented(ctx context.Context, a *apiregistrationv1.APIService) error {
	documents, err := c.Discovery.OpenAPIV3WithContext(ctx).PathsWithContext(ctx)
	if err != nil {
		return fmt.Errorf("openapi: %w", err)
	}
	if _, ok := documents["apis/"+versionOf(a).String()]; !ok {
		return fmt.Errorf("the OpenAPI documents do not have %s yet", versionOf(a))
	}
	return nil
}

// used returns an error that says why the control plane may still use the server of an APIService
// that was deleted.
func (c *registrar) used(ctx context.Context, a *apiregistrationv1.APIService) error {
	stored, err := c.apiService(ctx, a.Name)
	switch {
	case err != nil:
		return err
	case stored != nil && sameService(stored, a):
		return errors.New("it has not been deleted yet")
	case stored != nil:
		return nil // something else serves the version
	}
	return c.Unserved(ctx, versionOf(a))
}

// remove deletes an object, unless it is another server's.
func (c *registrar) remove(ctx context.Context, obj runtime.Object) error {
	if a, ok := obj.(*apiregistrationv1.APIService); ok {
		stored, err := c.apiService(ctx, a.Name)
		if err != nil || stored == nil || !sameService(stored, a) {
			return err
		}
	}
	u, err := wanted(obj)
	if err != nil {
		return err
	}
	err = c.resource(u).Delete(ctx, u.GetName(), metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete %s %s: %w", u.GetKind(), u.GetName(), err)
	}
	return nil
}
