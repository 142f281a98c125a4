package ownerrefs

import (
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

// Handler tells a controller about changes of the objects of its owners.
type Handler[T Object] struct {
	// Kind is the kind of the owners.
	Kind schema.GroupKind
	// Changed is called with the key of an owner. Old is nil for a new object, and object is nil
	// for one that is gone or has another owner now.
	Changed func(key string, old, object T)
	// Orphan is called for objects that have no controller and are new, have changed their labels
	// or have lost their controller. They may be in deletion already.
	Orphan func(object T)
	// Seen is called before Changed for each version of an object. Gone is set for an object that
	// no longer exists or has another owner now. Seen may be nil.
	Seen func(owner types.UID, object T, gone bool)
}

var _ cache.ResourceEventHandler = &Handler[Object]{}

// OnAdd implements cache.ResourceEventHandler.
func (h *Handler[T]) OnAdd(obj any, _ bool) {
	var none T
	h.now(none, obj.(T))
}

// OnUpdate implements cache.ResourceEventHandler.
func (h *Handler[T]) OnUpdate(oldObj, obj any) {
	old, object := oldObj.(T), obj.(T)
	if old.GetResourceVersion() == object.GetResourceVersion() {
		return // a resync
	}
	before, after := h.ownerOf(old), h.ownerOf(object)
	if before != nil && (after == nil || before.UID != after.UID) {
		if h.Seen != nil {
			h.Seen(before.UID, old, true)
		}
		var none T
		h.Changed(key(old, before), old, none)
	}
	if metav1.GetControllerOfNoCopy(object) == nil &&
		metav1.GetControllerOfNoCopy(old) == nil && maps.Equal(old.GetLabels(), object.GetLabels()) {
		return
	}
	h.now(old, object)
}

// now handles an object that exists.
func (h *Handler[T]) now(old, object T) {
	if ref := h.ownerOf(object); ref != nil {
		if h.Seen != nil {
			h.Seen(ref.UID, object, false)
		}
		h.Changed(key(object, ref), old, object)
	} else if metav1.GetControllerOfNoCopy(object) == nil {
		h.Orphan(object)
	}
}

// OnDelete implements cache.ResourceEventHandler.
func (h *Handler[T]) OnDelete(obj any) {
	object := loop.Deleted(obj).(T)
	if ref := h.ownerOf(object); ref != nil {
		if h.Seen != nil {
			h.Seen(ref.UID, object, true)
		}
		var none T
		h.Changed(key(object, ref), object, none)
	}
}

func key(object metav1.Object, ref *metav1.OwnerReference) string {
	return cache.NewObjectName(object.GetNamespace(), ref.Name).String()
}

// ownerOf returns the controller reference of an object if it is to an owner of the handler's kind.
func (h *Handler[T]) ownerOf(object T) *metav1.OwnerReference {
	ref := metav1.GetControllerOfNoCopy(object)
	if ref == nil || ref.Kind != h.Kind.Kind ||
		schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).Group != h.Kind.Group {
		return nil
	}
	return ref
}

// OfOwners returns a watch of owners. It calls changed with the key of one that is new or has
// changed, and gone with one that was deleted.
func OfOwners(
	owners cache.SharedIndexInformer, changed func(key string), gone func(owner metav1.Object),
) loop.Watch {
	return loop.Watch{Informer: owners, Handler: cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { changed(loop.Key(obj.(metav1.Object))) },
		UpdateFunc: func(_, obj any) { changed(loop.Key(obj.(metav1.Object))) },
		DeleteFunc: func(obj any) { gone(loop.Deleted(obj).(metav1.Object)) },
	}}
}

// Matching calls add with the keys of the owners in the namespace of an object that select it. An
// object that is being deleted gets no owner.
func Matching[O Object](
	owners cache.Indexer, object metav1.Object, selector func(O) *metav1.LabelSelector,
	add func(key string),
) {
	if len(object.GetLabels()) == 0 || object.GetDeletionTimestamp() != nil {
		return
	}
	found, err := owners.ByIndex(cache.NamespaceIndex, object.GetNamespace())
	if err != nil {
		return // there is always such an index
	}
	for _, obj := range found {
		owner := obj.(O)
		s := selector(owner)
		if s != nil && len(s.MatchLabels)+len(s.MatchExpressions) > 0 &&
			Selects(s, object.GetLabels()) {
			add(loop.Key(owner))
		}
	}
}

// Selects reports whether a valid selector selects labels. To parse a selector of thousands of
// requirements takes so long that an event handler would keep others waiting.
func Selects(s *metav1.LabelSelector, set map[string]string) bool {
	if s == nil {
		return false
	}
	for key, value := range s.MatchLabels {
		if has, ok := set[key]; !ok || has != value {
			return false
		}
	}
	for i := range s.MatchExpressions {
		r := &s.MatchExpressions[i]
		value, ok := set[r.Key]
		var met bool
		switch r.Operator {
		case metav1.LabelSelectorOpIn:
			met = ok && slices.Contains(r.Values, value)
		case metav1.LabelSelectorOpNotIn:
			met = !ok || !slices.Contains(r.Values, value)
		case metav1.LabelSelectorOpExists:
			met = ok
		case metav1.LabelSelectorOpDoesNotExist:
			met = !ok
		}
		if !met {
			return false
		}
	}
	return true
}
