package garbagecollector

import (
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// object is what the collector knows of an object that exists. It does not change.
type object struct {
	kind            schema.GroupVersionKind
	namespace, name string
	uid             types.UID
	resourceVersion string
	// revision is the resource version as a number, or 0 for an object of an extension API server.
	revision int64
	// remote is the resource of an object of an extension API server, otherwise nil.
	remote     *schema.GroupVersionResource
	deleting   bool
	finalizers []string
	owners     []metav1.OwnerReference
}

func newObject(m *metav1.PartialObjectMetadata) *object {
	o := &object{
		kind:            m.GroupVersionKind(),
		namespace:       m.Namespace,
		name:            m.Name,
		uid:             m.UID,
		resourceVersion: m.ResourceVersion,
		deleting:        m.DeletionTimestamp != nil,
		finalizers:      m.Finalizers,
		owners:          m.OwnerReferences,
	}
	o.revision, _ = strconv.ParseInt(m.ResourceVersion, 10, 64) // the storage writes numbers
	return o
}

// foreground reports whether the object waits until its blocking dependents are gone.
func (o *object) foreground() bool {
	return o.deleting && slices.Contains(o.finalizers, metav1.FinalizerDeleteDependents)
}

// orphans reports whether the object waits until its dependents do not name it any more.
func (o *object) orphans() bool {
	return o.deleting && slices.Contains(o.finalizers, metav1.FinalizerOrphanDependents)
}

// waits reports whether the object waits for its dependents.
func (o *object) waits() bool { return o.foreground() || o.orphans() }

// concerns reports whether the object needs a node although no other object names it.
func (o *object) concerns() bool { return len(o.owners) > 0 || o.remote != nil || o.waits() }

// blocks reports whether the object blocks the deletion of an owner in the foreground.
func (o *object) blocks(owner types.UID) bool {
	return slices.ContainsFunc(o.owners, func(r metav1.OwnerReference) bool {
		return r.UID == owner && r.BlockOwnerDeletion != nil && *r.BlockOwnerDeletion
	})
}

// mayBelongTo reports whether the object may have the owner, which must be cluster-scoped or in the
// same namespace.
func (o *object) mayBelongTo(owner *object) bool {
	return owner.namespace == "" || owner.namespace == o.namespace
}

// misplaces reports whether a cluster-scoped object names a namespaced owner. It is not deleted,
// whether the owner exists or not.
func (o *object) misplaces(owner *object) bool { return o.namespace == "" && owner.namespace != "" }

// names reports whether a reference in the object names owner. The version does not matter, because
// a stored object has another one than the reference may have.
func (o *object) names(r *metav1.OwnerReference, owner *object) bool {
	kind := schema.FromAPIVersionAndKind(r.APIVersion, r.Kind)
	return r.UID == owner.uid && r.Name == owner.name && kind.GroupKind() == owner.kind.GroupKind() &&
		o.mayBelongTo(owner)
}

// coordinates are where a reference says that an owner is.
type coordinates struct{ apiVersion, kind, namespace, name string }

func (o *object) coordinates(r *metav1.OwnerReference) coordinates {
	return coordinates{r.APIVersion, r.Kind, o.namespace, r.Name}
}
