package servertest

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
)

// Apply creates the objects of the sources one after the other, and returns them as they were
// stored. If an object exists already, it is changed by a server-side apply that takes ownership of
// conflicting fields. The status of an object is not written.
//
// An object that belongs in a namespace and names none gets the given one, or "default" if that is
// empty. Apply waits until the custom resources of a CRD can be created before it creates
// what follows, so CRDs and their resources may be in one file.
//
// In a cluster that outlives the test, the objects that Apply created are deleted when the test
// ends, the last one first. A control plane of [Run] keeps them until it stops.
func Apply(t TB, c API, namespace string, sources ...Source) []*unstructured.Unstructured {
	t.Helper()
	var stored []*unstructured.Unstructured
	do(t, c, "apply", func(ctx context.Context, k *clients) error {
		objects, err := readAll(sources)
		if err != nil {
			return err
		}
		if len(objects) == 0 {
			return errors.New("the sources are empty")
		}
		var definitions []*unstructured.Unstructured
		for _, u := range objects {
			isDefinition := len(pickDefinitions([]*unstructured.Unstructured{u})) > 0
			if !isDefinition && len(definitions) > 0 {
				if err := k.awaitServed(ctx, definitions); err != nil {
					return err
				}
				definitions = nil
			}
			applied, resource, created, err := k.apply(ctx, namespace, u)
			if err != nil {
				return fmt.Errorf("%s: %w", named(u), err)
			}
			if created && !endsWithTests(c) {
				deleteAtEnd(t, c, applied, resource)
			}
			if isDefinition {
				definitions = append(definitions, applied)
			}
			stored = append(stored, applied)
		}
		return k.awaitServed(ctx, definitions)
	})
	return stored
}

// resourceFor returns the resource of an object. It sets the object's namespace if the object needs
// one and has none.
func (k *clients) resourceFor(
	u *unstructured.Unstructured, namespace string,
) (dynamic.ResourceInterface, error) {
	kind := u.GroupVersionKind()
	if kind.Kind == "" || kind.Version == "" {
		return nil, errors.New("the object has no apiVersion or no kind")
	}
	mapping, err := k.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		return nil, fmt.Errorf("%w: its CRD must be installed first", err)
	}
	if err != nil {
		return nil, err
	}
	resource := k.dynamic.Resource(mapping.Resource)
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

func (k *clients) apply(
	ctx context.Context, namespace string, u *unstructured.Unstructured,
) (*unstructured.Unstructured, dynamic.ResourceInterface, bool, error) {
	resource, err := k.resourceFor(u, namespace)
	if err != nil {
		return nil, nil, false, err
	}
	stored, err := resource.Create(ctx, u, metav1.CreateOptions{FieldManager: fieldManager})
	if !apierrors.IsAlreadyExists(err) {
		return stored, resource, err == nil, err
	}
	u.SetManagedFields(nil) // a server-side apply refuses them
	u.SetResourceVersion("")
	stored, err = resource.Apply(ctx, u.GetName(), u,
		metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	return stored, resource, false, err
}

// deleteAtEnd deletes an object when the test ends.
func deleteAtEnd(t TB, c API, u *unstructured.Unstructured, resource dynamic.ResourceInterface) {
	what, name, uid := named(u), u.GetName(), u.GetUID()
	atEnd(t, c, what, func(ctx context.Context, _ *clients) error {
		// The UID spares an object of that name that somebody else has created since.
		err := resource.Delete(ctx, name, metav1.DeleteOptions{
			Preconditions:     &metav1.Preconditions{UID: &uid},
			PropagationPolicy: new(metav1.DeletePropagationBackground),
		})
		if apierrors.IsConflict(err) {
			return nil
		}
		return err
	})
}
