// Package storageversionmigrator carries out StorageVersionMigrations (KEP-4192): it writes each
// object of a resource without a change, so that the API server stores it in the present storage
// version and encrypts it with the present key.
package storageversionmigrator

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	storagemigrationv1beta1 "k8s.io/api/storagemigration/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/kinproc/kinproc/chain/features"
	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

// Name is the name of the loop in kube-controller-manager.
const Name = "storage-version-migrator-controller"

const (
	// patience is how long a resource may not be served. Its CRD may come after the migration.
	patience = time.Minute
	// turn is how long a pass writes objects. The next one goes on.
	turn = 10 * time.Second

	failedReason = "StorageVersionMigrationFailed"
)

// Loop is the loop of StorageVersionMigrations.
func Loop() loop.Loop {
	return loop.Loop{
		Name: Name, Alias: "svm",
		Purpose: "rewrites the objects of resources for StorageVersionMigrations",
		Workers: 5, Begin: begin, // as many as in kube-controller-manager
		Gate:  features.StorageVersionMigrator,
		After: []schema.GroupResource{storagemigrationv1.Resource("storageversionmigrations")},
	}
}

type controller struct {
	*loop.Controller

	mu sync.Mutex
	// left is what running migrations have to write yet; guarded by mu. Migrations of a resource
	// run one after the other, so a worker has what is in it to itself.
	left map[types.UID]*objects
}

// begin returns the work. Its keys are resources, so that only one migration of each runs.
func begin(l *loop.Controller) loop.Work {
	c := &controller{Controller: l, left: map[types.UID]*objects{}}
	return loop.Work{Sync: c.sync, Watches: []loop.Watch{
		loop.On(l.Informer(&storagemigrationv1beta1.StorageVersionMigration{}),
			func(old, m *storagemigrationv1beta1.StorageVersionMigration) {
				if m == nil {
					c.forget(old.UID)
					m = old
				}
				r := m.Spec.Resource
				c.Enqueue(schema.GroupResource{Group: r.Group, Resource: r.Resource}.String())
			}),
	}}
}

type migration = storagemigrationv1.StorageVersionMigration

// is reports whether a condition of a migration is true.
func is(m *migration, t storagemigrationv1.MigrationConditionType) bool {
	return meta.IsStatusConditionTrue(m.Status.Conditions, string(t))
}

func ended(m *migration) bool {
	return is(m, storagemigrationv1.MigrationSucceeded) || is(m, storagemigrationv1.MigrationFailed)
}

func (c *controller) forget(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.left, uid)
}

// sync goes on with the migration of a resource that runs, or begins with the oldest one.
func (c *controller) sync(ctx context.Context, key string) (time.Duration, error) {
	resource := schema.ParseGroupResource(key)
	// The informer may not know yet that a migration runs.
	list, err := c.Client.StoragemigrationV1().StorageVersionMigrations().List(ctx,
		metav1.ListOptions{})
	if err != nil {
		return 0, loop.IgnoreNotFound(err)
	}
	var next *migration
	for i := range list.Items {
		m := &list.Items[i]
		running := is(m, storagemigrationv1.MigrationRunning)
		switch {
		case m.Spec.Resource != metav1.GroupResource(resource):
		case ended(m) && running:
			if err := c.finish(ctx, m); err != nil {
				return 0, loop.IgnoreChanged(err)
			}
		case ended(m):
		case next == nil || before(m, next):
			next = m
		}
	}
	if next == nil {
		return 0, nil
	}
	again, err := c.migrate(ctx, next, resource)
	return again, loop.IgnoreChanged(err)
}

// before reports whether a migration comes before another one of the same resource.
func before(a, b *migration) bool {
	if runs := is(a, storagemigrationv1.MigrationRunning); runs != is(b,
		storagemigrationv1.MigrationRunning) {
		return runs
	}
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		strings.Compare(a.Name, b.Name)) < 0
}

// migrate takes a migration as far as it can get now.
func (c *controller) migrate(
	ctx context.Context, m *migration, resource schema.GroupResource,
) (again time.Duration, err error) {
	if !is(m, storagemigrationv1.MigrationRunning) {
		if err := c.mark(ctx, resource, fmt.Sprintf("Migration %s is running", m.Name)); err != nil {
			return 0, err
		}
		if m, err = c.say(ctx, m, running("The migration is running")); err != nil {
			return 0, err
		}
	}
	gvr, found, err := c.find(resource)
	if err != nil {
		return 0, err
	}
	switch {
	case found == nil:
		if left := loop.Left(m.CreationTimestamp.Time, patience, time.Now()); left > 0 {
			return min(left, time.Second), nil
		}
		return 0, c.fail(ctx, m, "resource does not exist in discovery")
	case !sets.New(found.Verbs...).HasAll(needed()...):
		return 0, c.fail(ctx, m, fmt.Sprintf("resource %q does not support discovery operations: %v",
			gvr, needed()))
	}
	if m.Status.ResourceVersion == "" {
		now, err := c.Metadata.Resource(gvr).List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			return 0, fmt.Errorf("read the version of %s: %w", resource, err)
		}
		m.Status.ResourceVersion = now.ResourceVersion
		if m, err = c.say(ctx, m); err != nil {
			return 0, err
		}
	}
	left, err := c.objects(ctx, m, gvr, found.Kind)
	if err != nil {
		return 0, err
	}
	again, err = c.write(ctx, gvr, left)
	switch {
	case retriable(err):
		_, failed := c.say(ctx, m, running(left.progress()+"; transient error: "+err.Error()))
		return 0, cmp.Or(err, failed)
	case err != nil:
		return 0, c.fail(ctx, m, fmt.Sprintf(
			"%d/%d not yet migrated. migration encountered unhandled error: %s", len(left.rest),
			left.total, err), running(left.progress()))
	case again > 0:
		return again, nil
	}
	if m, err = c.say(ctx, m, running(left.progress()), metav1.Condition{
		Type: string(storagemigrationv1.MigrationSucceeded), Status: metav1.ConditionTrue,
		Reason: "StorageVersionMigrationSucceeded", Message: "Migration completed",
	}); err != nil {
		return 0, err
	}
	return 0, c.finish(ctx, m)
}

// needed returns the verbs that a resource must have.
func needed() []string { return []string{"update", "patch", "list"} }

func running(message string) metav1.Condition {
	return metav1.Condition{
		Type: string(storagemigrationv1.MigrationRunning), Status: metav1.ConditionTrue,
		Reason: "MigrationRunning", Message: message,
	}
}

// fail ends a migration that cannot succeed.
func (c *controller) fail(
	ctx context.Context, m *migration, why string, more ...metav1.Condition,
) error {
	m, err := c.say(ctx, m, append(more, metav1.Condition{
		Type: string(storagemigrationv1.MigrationFailed), Status: metav1.ConditionTrue,
		Reason: failedReason, Message: why,
	})...)
	if err != nil {
		return err
	}
	return c.finish(ctx, m)
}

// finish says that a migration that has ended does not run any more. The CRD comes first: if the
// loop ends in between, the next one finds the migration.
func (c *controller) finish(ctx context.Context, m *migration) error {
	c.forget(m.UID)
	resource := schema.GroupResource(m.Spec.Resource)
	if err := c.unmark(ctx, resource, is(m, storagemigrationv1.MigrationSucceeded)); err != nil {
		return err
	}
	_, err := c.say(ctx, m, metav1.Condition{
		Type: string(storagemigrationv1.MigrationRunning), Status: metav1.ConditionFalse,
		Reason: "MigrationCompleted", Message: "Migration completed",
		ObservedGeneration: m.Generation,
	})
	return err
}

// say writes the status of a migration with some conditions, and returns what is stored then.
func (c *controller) say(
	ctx context.Context, m *migration, conditions ...metav1.Condition,
) (*migration, error) {
	for _, condition := range conditions {
		meta.SetStatusCondition(&m.Status.Conditions, condition)
	}
	return c.Client.StoragemigrationV1().StorageVersionMigrations().UpdateStatus(ctx, m,
		metav1.UpdateOptions{})
}

// find returns where a resource is served, in the preferred version of its group if that has it.
// Found is nil if it is not served.
func (c *controller) find(
	resource schema.GroupResource,
) (where schema.GroupVersionResource, found *metav1.APIResource, err error) {
	groups, err := c.Client.Discovery().ServerGroups()
	if err != nil {
		return where, nil, fmt.Errorf("discover %s: %w", resource, err)
	}
	i := slices.IndexFunc(groups.Groups, func(g metav1.APIGroup) bool {
		return g.Name == resource.Group
	})
	if i < 0 {
		return where, nil, nil
	}
	group := &groups.Groups[i]
	for _, v := range slices.Insert(slices.Clone(group.Versions), 0, group.PreferredVersion) {
		list, err := c.Client.Discovery().ServerResourcesForGroupVersion(v.GroupVersion)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return where, nil, fmt.Errorf("discover %s: %w", v.GroupVersion, err)
		}
		for i := range list.APIResources {
			if r := &list.APIResources[i]; r.Name == resource.Resource {
				return resource.WithVersion(v.Version), r, nil
			}
		}
	}
	return where, nil, nil
}
