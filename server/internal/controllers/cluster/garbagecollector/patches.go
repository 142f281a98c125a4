package garbagecollector

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
)

// finalize removes the finalizer by which an object waits for its dependents.
func (r *run) finalize(ctx context.Context, v *view) error {
	_, err := r.patch(ctx, v, func(o *object) map[string]any {
		if !o.waits() {
			return nil
		}
		var others []string
		for _, f := range o.finalizers {
			if f != metav1.FinalizerDeleteDependents && f != metav1.FinalizerOrphanDependents {
				others = append(others, f)
			}
		}
		return map[string]any{"finalizers": others}
	})
	return err
}

// release removes references from an object.
func (r *run) release(ctx context.Context, v *view, refs []metav1.OwnerReference) error {
	if len(refs) == 0 {
		return nil
	}
	removed := func(ref metav1.OwnerReference) bool {
		return slices.ContainsFunc(refs, func(r metav1.OwnerReference) bool {
			return r.UID == ref.UID && r.Name == ref.Name && r.Kind == ref.Kind &&
				r.APIVersion == ref.APIVersion
		})
	}
	_, err := r.patch(ctx, v, func(o *object) map[string]any {
		left := slices.DeleteFunc(slices.Clone(o.owners), removed)
		if len(left) == len(o.owners) {
			return nil
		}
		if len(left) == 0 {
			left = nil
		}
		return map[string]any{"ownerReferences": left}
	})
	return err
}

// unblock changes the references of an object so that they do not block the owners' deletion. It
// returns the object as it is then, or nil if it is gone.
func (r *run) unblock(ctx context.Context, v *view) (*object, error) {
	return r.patch(ctx, v, func(o *object) map[string]any {
		owners, changed := slices.Clone(o.owners), false
		for i := range owners {
			if isTrue(owners[i].BlockOwnerDeletion) {
				owners[i].BlockOwnerDeletion, changed = new(false), true
			}
		}
		if !changed {
			return nil
		}
		return map[string]any{"ownerReferences": owners}
	})
}

var errChanging = errors.New("the object keeps changing")

// patchAttempts limits how often a patch is made of an object that keeps changing.
const patchAttempts = 5

// patch changes metadata of an object. Edit returns the changed fields, or nil if there is nothing
// to change. Patch returns the object as it is then, or nil if it is gone.
func (r *run) patch(
	ctx context.Context, v *view, edit func(*object) map[string]any,
) (*object, error) {
	client, err := r.clientOf(ctx, v.object)
	if err != nil {
		return nil, err
	}
	o := v.object
	for range patchAttempts {
		fields := edit(o)
		if fields == nil {
			return o, nil
		}
		fields["uid"], fields["resourceVersion"] = o.uid, o.resourceVersion
		body, err := json.Marshal(map[string]any{"metadata": fields})
		if err != nil {
			return nil, err
		}
		m, failed := client.Patch(ctx, o.name, types.MergePatchType, body, metav1.PatchOptions{})
		if failed == nil {
			changed := *o
			changed.resourceVersion, changed.finalizers, changed.owners = m.ResourceVersion, m.Finalizers,
				m.OwnerReferences
			return &changed, nil
		}
		if r.isGone(failed) {
			return nil, nil
		}
		if !apierrors.IsConflict(failed) {
			return nil, fmt.Errorf("patch %s: %w", o.name, failed)
		}
		if o, err = r.latest(ctx, v.key, o); o == nil || err != nil {
			return nil, err
		}
	}
	return nil, errChanging
}

// latest returns an object as it is now, or nil if it is gone.
func (r *run) latest(ctx context.Context, key string, o *object) (*object, error) {
	var m *metav1.PartialObjectMetadata
	var err error
	if strings.HasPrefix(key, remotePrefix) {
		m, err = r.Metadata.Resource(*o.remote).Namespace(o.namespace).Get(ctx, o.name,
			metav1.GetOptions{})
		if err != nil && r.isGone(err) {
			return nil, nil
		}
	} else {
		m, _, err = r.storage.Metadata(ctx, key)
	}
	if err != nil || m == nil || m.UID != o.uid {
		return nil, err
	}
	latest := newObject(m)
	latest.kind, latest.remote = o.kind, o.remote
	return latest, nil
}

// clientOf returns the client of an object's resource and namespace.
func (r *run) clientOf(ctx context.Context, o *object) (metadata.ResourceInterface, error) {
	if o.remote != nil {
		return r.Metadata.Resource(*o.remote).Namespace(o.namespace), nil
	}
	at, err := r.kinds.findStored(ctx, o.kind)
	if err != nil {
		return nil, err
	}
	return r.Metadata.Resource(at.GroupVersionResource).Namespace(o.namespace), nil
}
