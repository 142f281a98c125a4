package storageversionmigrator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/pager"
)

// objects are what a migration writes.
type objects struct {
	total int
	rest  []object // that are not written yet
	kind  string
}

type object struct{ namespace, name, version string }

// progress says how far a migration is.
func (o *objects) progress() string {
	switch {
	case o.total == 0:
		return "The migration is running"
	case len(o.rest) > 0:
		return fmt.Sprintf("The migration is running, %d/%d objects not yet migrated", len(o.rest),
			o.total)
	}
	return fmt.Sprintf("The migration is running, %d objects verified migrated", o.total)
}

// objects returns the objects that a migration has to write yet. At first, these are all that
// nobody has written since it began.
func (c *controller) objects(
	ctx context.Context, m *migration, gvr schema.GroupVersionResource, kind string,
) (*objects, error) {
	c.mu.Lock()
	left := c.left[m.UID]
	c.mu.Unlock()
	if left != nil {
		return left, nil
	}
	left = &objects{kind: kind}
	pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return c.Metadata.Resource(gvr).List(ctx, o)
	})
	if err := pages.EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
		found := o.(*metav1.PartialObjectMetadata)
		left.total++
		newer, err := resourceversion.CompareResourceVersion(found.ResourceVersion,
			m.Status.ResourceVersion)
		if err == nil && newer <= 0 {
			left.rest = append(left.rest, object{found.Namespace, found.Name, found.ResourceVersion})
		}
		return err
	}); err != nil {
		return nil, fmt.Errorf("list %s: %w", gvr.GroupResource(), err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left[m.UID] = left
	return left, nil
}

// write writes objects without changes. If again is positive, it has not written all of them yet.
func (c *controller) write(
	ctx context.Context, gvr schema.GroupVersionResource, left *objects,
) (again time.Duration, err error) {
	start := time.Now()
	for len(left.rest) > 0 {
		if time.Since(start) > turn {
			return time.Nanosecond, nil
		}
		o := left.rest[0]
		patch, err := json.Marshal(metav1.PartialObjectMetadata{
			TypeMeta: metav1.TypeMeta{
				APIVersion: gvr.GroupVersion().String(), Kind: left.kind,
			},
			ObjectMeta: metav1.ObjectMeta{ResourceVersion: o.version},
		})
		if err != nil {
			return 0, err
		}
		_, err = c.Metadata.Resource(gvr).Namespace(o.namespace).Patch(ctx, o.name,
			types.MergePatchType, patch, metav1.PatchOptions{FieldManager: Name})
		// Whoever has written or deleted the object has done what the migration is for.
		if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return 0, err
		}
		left.rest = left.rest[1:]
	}
	return 0, nil
}

// retriable reports whether an object may be written later.
func retriable(err error) bool {
	var status apierrors.APIStatus
	return err != nil && (!errors.As(err, &status) || apierrors.IsServerTimeout(err) ||
		apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) ||
		apierrors.IsInternalError(err) || apierrors.IsTimeout(err))
}
