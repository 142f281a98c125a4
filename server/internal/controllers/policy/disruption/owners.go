package disruption

import (
	"context"
	"fmt"
	"math"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/kinproc/kinproc/server/internal/controllers/autoscaling/scale"
	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

// owner is a controller of pods.
type owner struct {
	metav1.Object
	replicas int32
}

// scale returns how many pods the controllers of the pods want together, and how many pods have no
// controller. Owners of built-in kinds are watched, but not before a pod has one.
func (c *controller) scale(
	ctx context.Context, pods []*corev1.Pod,
) (expected int32, unmanaged int, err error) {
	seen := map[types.UID]bool{}
	var all int64
	for _, p := range pods {
		ref := metav1.GetControllerOfNoCopy(p)
		if ref == nil {
			unmanaged++
			continue
		}
		if seen[ref.UID] {
			continue
		}
		seen[ref.UID] = true
		found, err := c.find(ctx, p.Namespace, ref)
		if err != nil {
			return 0, 0, err
		}
		if found == nil {
			return 0, 0, fmt.Errorf("found no controllers for pod %q", p.Name)
		}
		// The ReplicaSets of a Deployment have their number of pods together.
		if uid := found.GetUID(); uid != ref.UID {
			if seen[uid] {
				continue
			}
			seen[uid] = true
		}
		all += int64(found.replicas)
	}
	return int32(min(all, math.MaxInt32)), unmanaged, nil
}

// find returns the controller that decides how many pods there are, or nil if it is gone.
func (c *controller) find(
	ctx context.Context, namespace string, ref *metav1.OwnerReference,
) (*owner, error) {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return nil, err
	}
	key := namespace + "/" + ref.Name
	switch (schema.GroupKind{Group: gv.Group, Kind: ref.Kind}) {
	case schema.GroupKind{Kind: "ReplicationController"}:
		return lookUp(ctx, c, c.Informer(&corev1.ReplicationController{}), key, ref,
			func(r *corev1.ReplicationController) *int32 { return r.Spec.Replicas })
	case schema.GroupKind{Group: "apps", Kind: "StatefulSet"}:
		return lookUp(ctx, c, c.Informer(&appsv1.StatefulSet{}), key, ref,
			func(s *appsv1.StatefulSet) *int32 { return s.Spec.Replicas })
	case schema.GroupKind{Group: "apps", Kind: "ReplicaSet"}:
		set, err := lookUp(ctx, c, c.Informer(&appsv1.ReplicaSet{}), key, ref,
			func(s *appsv1.ReplicaSet) *int32 { return s.Spec.Replicas })
		if err != nil || set == nil {
			return nil, err
		}
		above := metav1.GetControllerOfNoCopy(set)
		if above == nil || above.Kind != "Deployment" || !strings.HasPrefix(above.APIVersion, "apps/") {
			return set, nil
		}
		return lookUp(ctx, c, c.Informer(&appsv1.Deployment{}), namespace+"/"+above.Name, above,
			func(d *appsv1.Deployment) *int32 { return d.Spec.Replicas })
	}
	return c.findScaled(ctx, namespace, ref)
}

// lookUp returns an owner of a built-in kind.
func lookUp[T metav1.Object](
	ctx context.Context, c *controller, informer cache.SharedIndexInformer, key string,
	ref *metav1.OwnerReference, replicas func(T) *int32,
) (*owner, error) {
	if !informer.HasSynced() {
		if err := c.Watch(loop.Watch{Informer: informer}); err != nil {
			return nil, err
		}
		if err := c.WaitForSync(ctx); err != nil {
			return nil, err
		}
	}
	obj, ok, err := informer.GetIndexer().GetByKey(key)
	if err != nil || !ok {
		return nil, err
	}
	found := obj.(T)
	if found.GetUID() != ref.UID {
		return nil, nil
	}
	return &owner{found, ptr.Deref(replicas(found), 1)}, nil
}

// findScaled asks an owner of another kind for its scale.
func (c *controller) findScaled(
	ctx context.Context, namespace string, ref *metav1.OwnerReference,
) (*owner, error) {
	client := scale.Client{Discovery: c.Client.Discovery()}
	found, err := client.Get(ctx, namespace, ref.APIVersion, ref.Kind, ref.Name)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return nil, nil // the owner is gone
	}
	if err != nil {
		return nil, err
	}
	if found.UID != ref.UID {
		return nil, nil
	}
	return &owner{found, found.Spec.Replicas}, nil
}
