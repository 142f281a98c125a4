package garbagecollector

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// errUnseen says that an owner exists, but that the graph does not have it yet.
var errUnseen = errors.New("the owner was found, but no event of it was seen yet")

// process does what is to be done about an object and its references.
func (r *run) process(ctx context.Context, n *node) error {
	v := r.graph.look(n)
	if v == nil {
		return nil
	}
	o := v.object
	if o.waits() && !v.kept {
		if err := r.finalize(ctx, v); err != nil {
			return err
		}
	}
	if len(o.owners) == 0 {
		return nil
	}
	if !o.deleting {
		for i := range o.owners {
			if v.owners[i] != unknown {
				continue
			}
			var err error
			if v.owners[i], err = r.lookUp(ctx, o, &o.owners[i]); err != nil {
				return err
			}
		}
	}
	with := func(standings ...standing) []metav1.OwnerReference {
		var owners []metav1.OwnerReference
		for i := range o.owners {
			if slices.Contains(standings, v.owners[i]) {
				owners = append(owners, o.owners[i])
			}
		}
		return owners
	}
	switch {
	case o.foreground() && v.kept && len(with(waiting)) > 0 && v.cycle:
		_, err := r.unblock(ctx, v)
		return err
	case o.deleting:
		return r.release(ctx, v, with(orphaning))
	case len(with(misplaced)) > 0:
		return nil // nobody can say whether the owner exists
	case len(with(orphaning, solid)) > 0:
		return r.release(ctx, v, with(orphaning, waiting, dangling))
	case len(with(waiting)) > 0 && v.dependents:
		if v.cycle {
			var err error
			if o, err = r.unblock(ctx, v); o == nil || err != nil {
				return err
			}
		}
		return r.delete(ctx, v.key, o, metav1.DeletePropagationForeground)
	case slices.Contains(o.finalizers, metav1.FinalizerOrphanDependents):
		return r.delete(ctx, v.key, o, metav1.DeletePropagationOrphan)
	case slices.Contains(o.finalizers, metav1.FinalizerDeleteDependents):
		return r.delete(ctx, v.key, o, metav1.DeletePropagationForeground)
	}
	return r.delete(ctx, v.key, o, metav1.DeletePropagationBackground)
}

// lookUp finds out how an owner stands that is not in the graph.
func (r *run) lookUp(
	ctx context.Context, o *object, ref *metav1.OwnerReference,
) (standing, error) {
	at, err := r.kinds.find(ctx, schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind))
	if err != nil {
		return unknown, err
	}
	namespace := ""
	if at.namespaced {
		if namespace = o.namespace; namespace == "" {
			return misplaced, r.reportNamespace(ctx, o, ref, at)
		}
	}
	key := r.storage.Key(at.GroupResource(), namespace, ref.Name)
	stored, revision, err := r.storage.Metadata(ctx, key)
	if err != nil {
		return unknown, err
	}
	if stored != nil && stored.UID == ref.UID && at.Resource != "events" { // which nobody follows
		if !r.graph.observe(key, newObject(stored), revision) {
			return unknown, errUnseen
		}
		if s := r.graph.again(o, ref); s != unknown {
			return s, nil
		}
		return unknown, errUnseen
	}
	// An extension API server may store the object. Besides, the resource is sure to be the right
	// one only if the API knows it.
	live, err := r.Metadata.Resource(at.GroupVersionResource).Namespace(namespace).Get(ctx, ref.Name,
		metav1.GetOptions{})
	switch {
	case err == nil && live.UID == ref.UID:
		return unknown, errUnseen
	case err != nil && !r.isGone(err):
		return unknown, fmt.Errorf("get the owner %s %s: %w", at.GroupResource(), ref.Name, err)
	}
	if at.namespaced {
		if err := r.reportNamespace(ctx, o, ref, at); err != nil {
			return unknown, err
		}
	}
	r.graph.lacks(o, ref)
	return dangling, nil
}

// isGone reports whether an error says that an object does not exist. That its path does not exist
// means that the resource is outdated.
func (r *run) isGone(err error) bool {
	if !apierrors.IsNotFound(err) {
		return false
	}
	if apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		r.kinds.forget()
		return false
	}
	return true
}

// delete deletes an object that is as the collector knows it.
func (r *run) delete(
	ctx context.Context, key string, o *object, policy metav1.DeletionPropagation,
) error {
	client, err := r.clientOf(ctx, o)
	if err != nil {
		return err
	}
	options := metav1.DeleteOptions{
		Preconditions:     &metav1.Preconditions{UID: &o.uid, ResourceVersion: &o.resourceVersion},
		PropagationPolicy: &policy,
	}
	err = client.Delete(ctx, o.name, options)
	if apierrors.IsConflict(err) {
		latest, failed := r.latest(ctx, key, o)
		if latest == nil {
			return failed
		}
		if !slices.EqualFunc(latest.owners, o.owners, equalReferences) {
			return err // an event will tell the graph
		}
		// The object may change all the time, for instance its status.
		options.Preconditions.ResourceVersion = nil
		err = client.Delete(ctx, o.name, options)
	}
	if err == nil || r.isGone(err) {
		return nil
	}
	return fmt.Errorf("delete %s: %w", o.name, err)
}

func equalReferences(a, b metav1.OwnerReference) bool {
	return a.APIVersion == b.APIVersion && a.Kind == b.Kind && a.Name == b.Name && a.UID == b.UID &&
		isTrue(a.Controller) == isTrue(b.Controller) &&
		isTrue(a.BlockOwnerDeletion) == isTrue(b.BlockOwnerDeletion)
}

func isTrue(b *bool) bool { return b != nil && *b }
