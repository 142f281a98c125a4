package namespaces

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/ptr"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

const (
	// parallel is the number of resources of a namespace that are processed concurrently. Most of
	// them have no objects.
	parallel = 4
	// finalizerWait is the longest wait for finalizers. The loop starts at a few milliseconds and
	// doubles the delay.
	finalizerWait = 5 * time.Second
	// timestampStep is how much later than its deletion timestamp an object's grace period may end,
	// because timestamps are truncated to seconds.
	timestampStep = time.Second
)

var pods = corev1.SchemeGroupVersion.WithResource("pods")

// resource is a namespaced resource and its verbs.
type resource struct {
	schema.GroupVersionResource
	verbs metav1.Verbs
}

// findings are the results of one pass through a namespace's content.
type findings struct {
	mu           sync.Mutex
	discovery    []error
	groupVersion []error
	content      []error
	// remaining counts objects by resource. finalizers counts finalizers by name.
	remaining  map[schema.GroupVersionResource]int
	finalizers map[string]int
	// grace is the longest remaining grace period.
	grace time.Duration
}

// err returns the failures that require another attempt.
func (f *findings) err() error {
	return errors.Join(slices.Concat(f.discovery, f.groupVersion, f.content)...)
}

// wait returns how long the remaining content may take to disappear. It returns 0 if nothing
// remains.
func (f *findings) wait() time.Duration {
	if len(f.remaining) == 0 {
		return 0
	}
	if len(f.finalizers) == 0 && f.grace > 0 {
		return f.grace
	}
	return finalizerWait
}

// An extension API server may never answer. inTime is how long a pass works on the content of a
// namespace before it reports what remains, and listInTime is how long a list may take.
const (
	inTime     = 20 * time.Second
	listInTime = 10 * time.Second
)

// emptyInTime is like empty, but ends in time. It returns an error if ctx ends before.
func (c *controller) emptyInTime(ctx context.Context, namespace string) (*findings, error) {
	limited, cancel := context.WithTimeout(ctx, inTime)
	defer cancel()
	return c.empty(limited, namespace), ctx.Err()
}

// empty deletes everything in a namespace, pods first, and returns what remains and what failed.
func (c *controller) empty(ctx context.Context, namespace string) *findings {
	f := &findings{remaining: map[schema.GroupVersionResource]int{}, finalizers: map[string]int{}}
	resources := c.discover(ctx, f)
	if i := slices.IndexFunc(resources, func(r resource) bool {
		return r.GroupVersionResource == pods
	}); i >= 0 {
		c.deleteAll(ctx, resources[i], namespace, f)
		if len(f.remaining) > 0 || len(f.content) > 0 {
			return f
		}
		resources = slices.Delete(resources, i, i+1)
	}
	queue := make(chan resource)
	var running sync.WaitGroup
	for range parallel {
		running.Go(func() {
			for r := range queue {
				c.deleteAll(ctx, r, namespace, f)
			}
		})
	}
	for _, r := range resources {
		queue <- r
	}
	close(queue)
	running.Wait()
	return f
}

// discover lists the namespaced resources that can be deleted, each in its preferred version. A
// group that cannot be discovered, because its server is down, does not keep the others from being
// emptied.
func (c *controller) discover(ctx context.Context, f *findings) []resource {
	lists, err := discovery.ServerPreferredNamespacedResourcesWithContext(ctx,
		discovery.ToDiscoveryInterfaceWithContext(c.Client.Discovery()))
	if err != nil {
		f.discovery = append(f.discovery, fmt.Errorf("discover resources: %w", err))
	}
	var resources []resource
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			f.groupVersion = append(f.groupVersion, err)
			continue
		}
		for _, r := range list.APIResources {
			if slices.Contains(r.Verbs, "delete") {
				resources = append(resources, resource{gv.WithResource(r.Name), r.Verbs})
			}
		}
	}
	return resources
}

// deleteAll deletes the objects of a resource in a namespace and counts those that remain.
func (c *controller) deleteAll(ctx context.Context, r resource, namespace string, f *findings) {
	if !slices.Contains(r.verbs, "list") && !slices.Contains(r.verbs, "deletecollection") {
		return
	}
	client := c.Metadata.Resource(r.GroupVersionResource).Namespace(namespace)
	left, err := list(ctx, client, r)
	// most resources have no objects and need only one request
	if err == nil && (left == nil || len(left.Items) > 0) {
		if err = deleteObjects(ctx, client, r, left); err == nil && r.GroupVersionResource == pods {
			err = finish(ctx, client, left)
		}
		if err == nil {
			left, err = list(ctx, client, r)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	// the resource itself may be gone, such as a custom resource
	if err != nil && !apierrors.IsNotFound(err) {
		f.content = append(f.content, fmt.Errorf("%s: %w", r.GroupResource(), err))
		return
	}
	if err != nil || left == nil || len(left.Items) == 0 {
		return
	}
	f.remaining[r.GroupVersionResource] = len(left.Items)
	for i := range left.Items {
		o := &left.Items[i]
		for _, name := range o.Finalizers {
			f.finalizers[name]++
		}
		if o.DeletionTimestamp != nil {
			f.grace = max(f.grace, untilGraceEnds(o, time.Now()), time.Millisecond)
		}
	}
}

// untilGraceEnds returns how much of the grace period of a deleted object remains. The grace period
// ends at the deletion timestamp. If the deletion is in the future, because the clock has been set
// back, nothing remains: the namespace must not wait for hours.
func untilGraceEnds(o *metav1.PartialObjectMetadata, now time.Time) time.Duration {
	grace := time.Duration(ptr.Deref(o.DeletionGracePeriodSeconds, 0)) * time.Second
	left := o.DeletionTimestamp.Add(timestampStep).Sub(now)
	if left > grace+2*timestampStep {
		return 0
	}
	return left
}

// finish deletes the pods whose grace period is over. That is the task of a kubelet, which has
// stopped the pods by then. But there may be no kubelet, and if there is one, it has had all the
// time that the pod allows. Otherwise, pods that are bound to a node would remain forever.
func finish(
	ctx context.Context, client metadata.ResourceInterface, pods *metav1.PartialObjectMetadataList,
) error {
	var errs []error
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.DeletionTimestamp == nil || untilGraceEnds(pod, time.Now()) > 0 {
			continue
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		options := metav1.DeleteOptions{
			GracePeriodSeconds: new(int64(0)),
			Preconditions:      metav1.NewUIDPreconditions(string(pod.UID)),
		}
		if err := client.Delete(ctx, pod.Name, options); err != nil && !apierrors.IsNotFound(err) &&
			!apierrors.IsConflict(err) {
			errs = append(errs, fmt.Errorf("%s: %w", pod.Name, err))
		}
	}
	return errors.Join(errs...)
}

// list returns the objects of a resource, or nil if the resource cannot be listed.
func list(
	ctx context.Context, client metadata.ResourceInterface, r resource,
) (*metav1.PartialObjectMetadataList, error) {
	if !slices.Contains(r.verbs, "list") {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, listInTime)
	defer cancel()
	l, err := client.List(ctx, metav1.ListOptions{})
	if apierrors.IsMethodNotSupported(err) {
		return nil, nil
	}
	return l, err
}

func deleteObjects(
	ctx context.Context, client metadata.ResourceInterface, r resource,
	objects *metav1.PartialObjectMetadataList,
) error {
	options := metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}
	if slices.Contains(r.verbs, "deletecollection") {
		if err := client.DeleteCollection(ctx, options,
			metav1.ListOptions{}); !apierrors.IsMethodNotSupported(err) {
			return err
		}
	}
	if objects == nil {
		return nil
	}
	var errs []error
	for _, o := range objects.Items {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := loop.IgnoreNotFound(client.Delete(ctx, o.Name, options)); err != nil &&
			!apierrors.IsMethodNotSupported(err) {
			errs = append(errs, fmt.Errorf("%s: %w", o.Name, err))
		}
	}
	return errors.Join(errs...)
}
