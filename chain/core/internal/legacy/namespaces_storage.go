package legacy

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	storageerrors "k8s.io/apiserver/pkg/storage/errors"
	"k8s.io/apiserver/pkg/util/dryrun"

	"github.com/kinproc/kinproc/chain/kind"
)

// namespaceREST stores namespaces. It deletes a namespace in two steps, and does not implement
// rest.CollectionDeleter, so namespaces cannot be deleted in bulk.
type namespaceREST struct {
	rest.CreaterUpdater
	rest.Getter
	rest.Lister
	rest.Watcher
	rest.Scoper
	rest.SingularNameProvider
	rest.ShortNamesProvider
	rest.StorageVersionProvider
	rest.ResetFieldsStrategy
	store *kind.Storage
}

func newNamespaceREST(s *kind.Storage) *namespaceREST {
	return &namespaceREST{s, s, s, s, s, s, s, s, s, s}
}

func (r *namespaceREST) Destroy() { r.store.Destroy() }

// Delete marks an active namespace for deletion, or removes a marked namespace that has no
// finalizers left.
func (r *namespaceREST) Delete(
	ctx context.Context, name string, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions,
) (runtime.Object, bool, error) {
	found, err := r.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, false, err
	}
	namespace := found.(*corev1.Namespace)
	if options == nil {
		options = metav1.NewDeleteOptions(0)
	}
	options = options.DeepCopy()
	if options.Preconditions == nil {
		options.Preconditions = &metav1.Preconditions{}
	}
	// The client means this namespace, not a later one with the same name.
	if options.Preconditions.UID == nil {
		options.Preconditions.UID = &namespace.UID
	}
	if want := options.Preconditions; *want.UID != namespace.UID {
		return nil, false, r.conflict(name, "the namespace's UID is %s, not %s", namespace.UID, *want.UID)
	} else if want.ResourceVersion != nil && *want.ResourceVersion != namespace.ResourceVersion {
		return nil, false, r.conflict(name, "the namespace's resource version is %s, not %s",
			namespace.ResourceVersion, *want.ResourceVersion)
	}
	switch {
	case namespace.DeletionTimestamp.IsZero():
		return r.mark(ctx, name, validate, options)
	case len(namespace.Spec.Finalizers) > 0:
		return namespace, false, nil
	}
	return r.store.Delete(ctx, name, validate, options)
}

func (r *namespaceREST) conflict(name, format string, args ...any) error {
	return apierrors.NewConflict(r.store.DefaultQualifiedResource, name, fmt.Errorf(format, args...))
}

// mark sets deletionTimestamp, the phase Terminating and the finalizers that options ask for.
func (r *namespaceREST) mark(
	ctx context.Context, name string, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions,
) (runtime.Object, bool, error) {
	key, err := r.store.KeyFunc(ctx, name)
	if err != nil {
		return nil, false, err
	}
	preconditions := &storage.Preconditions{
		UID:             options.Preconditions.UID,
		ResourceVersion: options.Preconditions.ResourceVersion,
	}
	update := func(existing runtime.Object) (runtime.Object, error) {
		n, ok := existing.(*corev1.Namespace)
		if !ok {
			return nil, fmt.Errorf("not a Namespace object: %T", existing)
		}
		if err := validate(ctx, n); err != nil {
			return nil, err
		}
		if n.DeletionTimestamp.IsZero() {
			n.DeletionTimestamp = new(metav1.Now())
		}
		n.Status.Phase = corev1.NamespaceTerminating
		n.Finalizers = dependentsFinalizers(n.Finalizers, options)
		return n, nil
	}
	out := r.store.New()
	err = r.store.Storage.GuaranteedUpdate(ctx, key, out, false, preconditions,
		storage.SimpleUpdate(update), dryrun.IsDryRun(options.DryRun), nil)
	if err != nil {
		resource := r.store.DefaultQualifiedResource
		err = storageerrors.InterpretUpdateError(storageerrors.InterpretGetError(err, resource, name),
			resource, name)
		if status := apierrors.APIStatus(nil); !errors.As(err, &status) {
			err = apierrors.NewInternalError(err)
		}
		return nil, false, err
	}
	return out, false, nil
}

// dependentsFinalizers returns finalizers with the orphan and foregroundDeletion finalizers added
// or removed as options require. They tell the garbage collector what to do with dependents.
func dependentsFinalizers(finalizers []string, options *metav1.DeleteOptions) []string {
	orphan := slices.Contains(finalizers, metav1.FinalizerOrphanDependents)
	foreground := slices.Contains(finalizers, metav1.FinalizerDeleteDependents)
	if policy := options.PropagationPolicy; policy != nil {
		orphan, foreground = *policy == metav1.DeletePropagationOrphan,
			*policy == metav1.DeletePropagationForeground
	} else if options.OrphanDependents != nil { // deprecated, but clients may still send it
		orphan, foreground = *options.OrphanDependents, foreground && !*options.OrphanDependents
	}
	set := func(list []string, name string, wanted bool) []string {
		list = slices.DeleteFunc(slices.Clone(list), func(f string) bool { return f == name && !wanted })
		if wanted && !slices.Contains(list, name) {
			list = append(list, name)
		}
		return list
	}
	return set(set(finalizers, metav1.FinalizerOrphanDependents, orphan),
		metav1.FinalizerDeleteDependents, foreground)
}
