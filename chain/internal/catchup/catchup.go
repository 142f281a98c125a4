// Package catchup has what the parts of a control plane need to wait, after a reset, until their
// caches have forgotten the state before it.
package catchup

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"

	"github.com/kinproc/kinproc/chain/internal/stored"
)

// Changes are what a reset has changed.
type Changes struct {
	Objects []Object
	// Opened is how many stores each resource had before.
	Opened map[schema.GroupResource]int
}

// Object is the change of one object.
type Object struct {
	Kind schema.GroupKind
	// Name is the object's key in stores: the name, or the namespace and the name.
	Name string
	// Before and After are the stored objects; nil if there is none.
	Before, After []byte
	// Revision is that of the change.
	Revision int64
}

// NewObject returns the change of a stored object, and false if the object cannot be read.
func NewObject(before, after []byte, revision int64) (o Object, ok bool) {
	either := after
	if either == nil {
		either = before
	}
	var object metav1.PartialObjectMetadata
	if stored.Metadata(either, &object) != nil {
		return Object{}, false
	}
	return Object{
		Kind: object.GroupVersionKind().GroupKind(), Name: cache.MetaObjectToName(&object).String(),
		Before: before, After: after, Revision: revision,
	}, object.Name != ""
}

// Of returns the changed objects of a kind.
func (c Changes) Of(kind schema.GroupKind) []Object {
	var all []Object
	for _, o := range c.Objects {
		if o.Kind == kind {
			all = append(all, o)
		}
	}
	return all
}

// WaitStore waits until the store of an informer of a kind has exactly the changed objects.
func (c Changes) WaitStore(ctx context.Context, kind schema.GroupKind, store cache.Store) error {
	for _, o := range c.Of(kind) {
		if err := Poll(ctx, func() (bool, error) { return o.in(store) }); err != nil {
			return fmt.Errorf("informer of %s: %w", kind, cmp.Or(context.Cause(ctx), err))
		}
	}
	return nil
}

func (o *Object) in(store cache.Store) (bool, error) {
	object, exists, err := store.GetByKey(o.Name)
	if err != nil || !exists {
		return o.After == nil, err
	}
	m, ok := object.(metav1.Object)
	return ok && o.After != nil && m.GetResourceVersion() == strconv.FormatInt(o.Revision, 10), nil
}

// pollInterval is how often conditions are checked for which there is no event.
const pollInterval = 200 * time.Microsecond

// Poll waits until a condition holds for which there is no event.
func Poll(ctx context.Context, done func() (bool, error)) error {
	return wait.PollUntilContextCancel(ctx, pollInterval, true,
		func(context.Context) (bool, error) { return done() })
}
