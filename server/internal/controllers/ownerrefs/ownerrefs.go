// Package ownerrefs finds the objects that belong to an owner, such as the pods of a ReplicaSet.
// Objects belong to the owner that their controller reference names. An owner adopts matching
// objects without such a reference, and releases its own when they do not match any more.
package ownerrefs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

// Object is any API object.
type Object interface {
	metav1.Object
	runtime.Object
}

// Owner is an object that controls others.
type Owner struct {
	Object
	Kind     schema.GroupVersionKind
	Selector labels.Selector
	// Accepts restricts what the selector matches. If it is nil, there is no restriction.
	Accepts func(metav1.Object) bool
	// Read reads the owner from the API, because the cache may not know yet that it was deleted.
	Read func(ctx context.Context) (metav1.Object, error)
}

func (o Owner) matches(object metav1.Object) bool {
	return o.Selector.Matches(labels.Set(object.GetLabels())) &&
		(o.Accepts == nil || o.Accepts(object))
}

// Reference returns the controller reference of the owner's objects.
func (o Owner) Reference() metav1.OwnerReference {
	return *metav1.NewControllerRef(o.Object, o.Kind)
}

// index is the index of objects by the uid of their controller, or by their namespace if they have
// none.
const index = "controller"

func orphansOf(namespace string) string { return "orphans/" + namespace }

// Indexers let an informer find objects by their owner.
func Indexers() cache.Indexers {
	return cache.Indexers{index: func(obj any) ([]string, error) {
		object, err := meta.Accessor(obj)
		if err != nil {
			return nil, err
		}
		if ref := metav1.GetControllerOfNoCopy(object); ref != nil {
			return []string{string(ref.UID)}, nil
		}
		return []string{orphansOf(object.GetNamespace())}, nil
	}}
}

// Owned returns the objects whose controller is the one with a uid. The informer of objects has
// [Indexers].
func Owned[T Object](objects cache.Indexer, owner types.UID) ([]T, error) {
	return indexed[T](objects, string(owner))
}

func indexed[T Object](objects cache.Indexer, value string) ([]T, error) {
	found, err := objects.ByIndex(index, value)
	if err != nil {
		return nil, err
	}
	list := make([]T, len(found))
	for i := range found {
		list[i] = found[i].(T)
	}
	return list, nil
}

// Patch changes the metadata of an object.
type Patch func(ctx context.Context, name string, patch []byte) error

// Claim returns the objects that belong to the owner. It adopts and releases objects with strategic
// merge patches. Finalizers are given to objects that are adopted. The objects that it returns are
// the owner's even if there is an error.
func Claim[T Object](
	ctx context.Context, objects cache.Indexer, owner Owner, patch Patch, finalizers ...string,
) ([]T, error) {
	// In this order, an object that was just adopted is in one of the lists at least.
	orphans, err := indexed[T](objects, orphansOf(owner.GetNamespace()))
	if err != nil {
		return nil, err
	}
	owned, err := Owned[T](objects, owner.GetUID())
	if err != nil {
		return nil, err
	}
	var errs []error
	claimed := owned[:0]
	for _, object := range owned {
		if owner.matches(object) {
			claimed = append(claimed, object)
		} else if owner.GetDeletionTimestamp() == nil {
			errs = append(errs, release(ctx, owner, object, patch))
		}
	}
	var checked error
	var read bool
	for _, object := range orphans {
		if owner.GetDeletionTimestamp() != nil || object.GetDeletionTimestamp() != nil ||
			!owner.matches(object) ||
			slices.ContainsFunc(claimed, func(t T) bool { return t.GetUID() == object.GetUID() }) {
			continue
		}
		if !read {
			checked, read = alive(ctx, owner), true
		}
		if checked != nil {
			errs = append(errs, checked)
			break
		}
		if err := adopt(ctx, owner, object, patch, finalizers); apierrors.IsNotFound(err) {
			continue
		} else if err != nil {
			errs = append(errs, fmt.Errorf("adopt %s: %w", object.GetName(), err))
			continue
		}
		claimed = append(claimed, object)
	}
	return claimed, errors.Join(errs...)
}

// IgnoreLag ignores an error of a write that is due to an informer that is behind. The informer
// causes an event when it catches up. In a namespace that is being deleted, there is nothing to do.
func IgnoreLag(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) ||
		apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	return err
}

// alive returns an error unless the owner still exists.
func alive(ctx context.Context, owner Owner) error {
	current, err := owner.Read(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("read %s before adopting: %w", loop.Key(owner), err)
	case current.GetUID() != owner.GetUID():
		return fmt.Errorf("%s is now another object with uid %s", loop.Key(owner), current.GetUID())
	case current.GetDeletionTimestamp() != nil:
		return fmt.Errorf("%s is being deleted, so it adopts nothing", loop.Key(owner))
	}
	return nil
}

// adopt gives an object the owner's controller reference. The uid in the patch keeps it from
// hitting another object with the same name.
func adopt(
	ctx context.Context, owner Owner, object metav1.Object, patch Patch, finalizers []string,
) error {
	data, err := json.Marshal(map[string]any{"metadata": struct {
		UID             string                  `json:"uid"`
		OwnerReferences []metav1.OwnerReference `json:"ownerReferences"`
		Finalizers      []string                `json:"finalizers,omitempty"`
	}{string(object.GetUID()), []metav1.OwnerReference{owner.Reference()}, finalizers}})
	if err != nil {
		return err
	}
	return patch(ctx, object.GetName(), data)
}

// release takes the owner's reference from an object.
func release(ctx context.Context, owner Owner, object metav1.Object, patch Patch) error {
	data, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": object.GetUID(),
		"ownerReferences": []map[string]any{
			{"$patch": "delete", "uid": owner.GetUID()},
		},
	}})
	if err != nil {
		return err
	}
	err = patch(ctx, object.GetName(), data)
	// Invalid: the object is another one now, or it has lost the reference already.
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsInvalid(err) {
		return nil
	}
	return fmt.Errorf("release %s: %w", object.GetName(), err)
}
