// Package endpoints has the controller that maintains the Endpoints of Services that select pods.
// The API is deprecated, but older clients still read it.
package endpoints

import (
	"context"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/endpointslice/util"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
	"github.com/kinproc/kinproc/server/internal/controllers/network/servicequeue"
)

// Name is the name of the loop in kube-controller-manager.
const Name = "endpoints-controller"

const (
	// managedByLabel says who keeps an object, since Kubernetes 1.33.
	managedByLabel = "endpoints.kubernetes.io/managed-by"
	managedBy      = "endpoint-controller"
	// capacity is the most addresses in an object.
	capacity  = 1000
	truncated = "truncated"
)

// Loop is the loop of Endpoints. Those of default/kubernetes, which always exist, do not start it.
func Loop() loop.Loop {
	return loop.Loop{
		Name: Name, Alias: "endpoint", Component: "endpoint-controller",
		Purpose:  "maintains the Endpoints of Services that select pods",
		Workload: true, Begin: begin,
		Workers: 5, // as in kube-controller-manager
		After:   []schema.GroupResource{corev1.Resource("services"), corev1.Resource("endpoints")},
	}
}

type controller struct {
	*servicequeue.Queue
	endpoints cache.SharedIndexInformer
	triggers  *util.TriggerTimeTracker

	mu sync.Mutex
	// stale has the version of the Endpoints of a Service that the last write replaced. Until the
	// informer has another version, it is behind.
	stale map[string]string
}

func begin(l *loop.Controller) loop.Work {
	c := &controller{
		Queue: servicequeue.New(l), endpoints: l.Informer(&corev1.Endpoints{}),
		triggers: util.NewTriggerTimeTracker(), stale: map[string]string{},
	}
	return loop.Work{Sync: c.sync, Watches: []loop.Watch{
		loop.Keys(c.Services, c.Enqueue), c.Pods(), loop.On(c.endpoints, c.endpointsChanged),
	}}
}

// endpointsChanged adds the Service of Endpoints. There may be none yet: Endpoints that somebody
// made for a Service to come stay.
func (c *controller) endpointsChanged(old, endpoints *corev1.Endpoints) {
	if endpoints == nil {
		endpoints = old
	}
	key := loop.Key(endpoints)
	if loop.Get[corev1.Service](c.Services, key) != nil ||
		endpoints.Labels[managedByLabel] == managedBy {
		c.Add(key)
	}
}

func (c *controller) sync(ctx context.Context, key string) (time.Duration, error) {
	name, err := cache.ParseObjectName(key)
	if err != nil {
		return 0, err
	}
	s := loop.Get[corev1.Service](c.Services, key)
	if s == nil {
		c.triggers.DeleteService(name.Namespace, name.Name)
		c.Gone(key)
		c.setStale(key, "")
		return 0, c.delete(ctx, key)
	}
	if s.Spec.Type == corev1.ServiceTypeExternalName || s.Spec.Selector == nil {
		return 0, nil
	}
	current := loop.Get[corev1.Endpoints](c.endpoints, key)
	if current != nil && c.isStale(key, current) {
		return 0, loop.Poll(servicequeue.Pause)
	}
	if wait := c.Wait(key); wait > 0 {
		return wait, nil
	}
	pods, err := corelisters.NewPodLister(c.Indexer(&corev1.Pod{})).Pods(name.Namespace).
		List(labels.Set(s.Spec.Selector).AsSelectorPreValidated())
	if err != nil {
		return 0, err
	}
	return 0, c.write(ctx, s, pods, current)
}

func (c *controller) isStale(key string, e *corev1.Endpoints) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stale[key] == e.ResourceVersion
}

func (c *controller) setStale(key, version string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if version == "" {
		delete(c.stale, key)
	} else {
		c.stale[key] = version
	}
}

// delete deletes the Endpoints of a Service that is gone, unless they are used for leader election.
func (c *controller) delete(ctx context.Context, key string) error {
	e := loop.Get[corev1.Endpoints](c.endpoints, key)
	if e == nil {
		return nil
	}
	if _, leader := e.Annotations[resourcelock.LeaderElectionRecordAnnotationKey]; leader {
		return nil
	}
	return loop.IgnoreChanged(c.Client.CoreV1().Endpoints(e.Namespace).Delete(ctx, e.Name,
		metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(e.UID))}))
}

// write creates or updates the Endpoints of a service unless they are up to date. Current is nil if
// there are none.
func (c *controller) write(
	ctx context.Context, s *corev1.Service, pods []*corev1.Pod, current *corev1.Endpoints,
) error {
	subsets := subsetsOf(s, pods)
	trigger := c.triggers.ComputeEndpointLastChangeTriggerTime(s.Namespace, s, pods)
	cut := truncate(subsets)
	wantedLabels := maps.Clone(s.Labels)
	if wantedLabels == nil {
		wantedLabels = map[string]string{}
	}
	delete(wantedLabels, corev1.IsHeadlessService)
	if s.Spec.ClusterIP == corev1.ClusterIPNone || s.Spec.ClusterIP == "" {
		wantedLabels[corev1.IsHeadlessService] = ""
	}
	wantedLabels[managedByLabel] = managedBy
	wanted := &corev1.Endpoints{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name},
	}
	if current != nil {
		over := current.Annotations[corev1.EndpointsOverCapacity] == truncated
		if equality.Semantic.DeepEqual(current.Subsets, subsets) &&
			maps.Equal(current.Labels, wantedLabels) && over == cut {
			return nil
		}
		wanted = current.DeepCopy()
	}
	wanted.Subsets, wanted.Labels = subsets, wantedLabels
	annotate(wanted, corev1.EndpointsLastChangeTriggerTime, trigger.UTC().Format(time.RFC3339Nano),
		!trigger.IsZero())
	annotate(wanted, corev1.EndpointsOverCapacity, truncated, cut)
	endpoints := c.Client.CoreV1().Endpoints(s.Namespace)
	if current == nil {
		if s.DeletionTimestamp != nil {
			return nil
		}
		_, err := endpoints.Create(ctx, wanted, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil // the informer will see it
		}
		return c.report(ctx, s, "FailedToCreateEndpoint", "create", err)
	}
	updated, err := endpoints.Update(ctx, wanted, metav1.UpdateOptions{})
	// A webhook may have undone the change.
	if err == nil && updated.ResourceVersion != current.ResourceVersion {
		c.setStale(loop.Key(s), current.ResourceVersion)
	}
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // the informer will see the change
	}
	return c.report(ctx, s, "FailedToUpdateEndpoint", "update", err)
}

func annotate(e *corev1.Endpoints, key, value string, set bool) {
	if set {
		metav1.SetMetaDataAnnotation(&e.ObjectMeta, key, value)
	} else {
		delete(e.Annotations, key)
	}
}

func (c *controller) report(
	ctx context.Context, s *corev1.Service, reason, verb string, err error,
) error {
	if err == nil || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) ||
		ctx.Err() != nil {
		return nil
	}
	c.Recorder.Eventf(s, corev1.EventTypeWarning, reason, "Failed to %s endpoint %s/%s: %v", verb,
		s.Namespace, s.Name, err)
	return err
}
