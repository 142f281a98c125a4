// Package deployment rolls out Deployments: it makes a ReplicaSet for each version of the pod
// template, and moves the replicas from the old ones to the new one.
package deployment

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
	"github.com/kinproc/kinproc/server/internal/controllers/ownerrefs"
	"github.com/kinproc/kinproc/server/internal/controllers/pods"
)

// Name is the name of the controller in kube-controller-manager.
const Name = "deployment-controller"

const workers = 4

var kind = appsv1.SchemeGroupVersion.WithKind("Deployment")

// Controller is the controller of Deployments.
type Controller struct {
	loop.Dependencies
	deployments, sets, pods cache.SharedIndexInformer
}

// New returns a controller. It starts the informers that it needs.
func New(d loop.Dependencies) (*Controller, error) {
	c := &Controller{
		Dependencies: d,
		deployments:  d.Informers.Apps().V1().Deployments().Informer(),
		sets:         d.Informers.Apps().V1().ReplicaSets().Informer(),
		pods:         d.Informers.Core().V1().Pods().Informer(),
	}
	for _, informer := range []cache.SharedIndexInformer{c.sets, c.pods} {
		if err := ownerrefs.AddIndex(informer); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// run is one call of Run.
type run struct {
	*Controller
	queue *loop.Queue
}

// Run runs the controller until ctx ends. It returns when all goroutines of the controller have
// ended.
func (c *Controller) Run(ctx context.Context) error {
	r := run{c, loop.New(Name)}
	var handlers loop.Handlers
	defer handlers.Remove()
	if err := errors.Join(
		handlers.Add(c.deployments, ownerrefs.OfOwners(r.queue.Soon, func(metav1.Object) {})),
		handlers.Add(c.sets, &ownerrefs.Handler[*appsv1.ReplicaSet]{
			Kind:    kind.GroupKind(),
			Changed: func(key string, _, _ *appsv1.ReplicaSet) { r.queue.Soon(key) },
			Orphan: func(rs *appsv1.ReplicaSet) {
				ownerrefs.Matching(c.deployments.GetIndexer(), rs, func(d *appsv1.Deployment) *metav1.LabelSelector {
					return d.Spec.Selector
				}, r.queue.Soon)
			},
		}),
		handlers.Add(c.pods, loop.OnChange(r.podChanged)),
	); err != nil {
		return fmt.Errorf("%s: %w", Name, err)
	}
	c.Informers.StartWithContext(ctx)
	return r.queue.Run(ctx, workers, r.sync, handlers.Synced()...)
}

func selector(d *appsv1.Deployment) (labels.Selector, error) {
	return metav1.LabelSelectorAsSelector(d.Spec.Selector)
}

// podChanged handles the end of a pod: a Deployment with the strategy Recreate waits for it.
func (r run) podChanged(old, pod *corev1.Pod) {
	switch {
	case old == nil:
		return
	case pod == nil:
		pod = old
	case pods.Finished(old) || !pods.Finished(pod):
		return
	}
	ref := metav1.GetControllerOfNoCopy(pod)
	if ref == nil || ref.Kind != "ReplicaSet" {
		return
	}
	rs, ok, err := r.sets.GetIndexer().GetByKey(pod.Namespace + "/" + ref.Name)
	if err != nil || !ok {
		return
	}
	owner := metav1.GetControllerOfNoCopy(rs.(metav1.Object))
	if owner == nil || owner.Kind != kind.Kind {
		return
	}
	key := pod.Namespace + "/" + owner.Name
	d, ok, err := r.deployments.GetIndexer().GetByKey(key)
	if err == nil && ok &&
		d.(*appsv1.Deployment).Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
		r.queue.Soon(key)
	}
}

func (r run) sync(ctx context.Context, key string) (time.Duration, error) {
	obj, ok, err := r.deployments.GetIndexer().GetByKey(key)
	if err != nil || !ok {
		return 0, err
	}
	seen := obj.(*appsv1.Deployment)
	s := selectorOf(seen)
	if s == nil {
		return 0, nil // cannot get better before it changes
	}
	if s.Empty() {
		r.Recorder.Eventf(seen, corev1.EventTypeWarning, "SelectingAll",
			"This deployment is selecting all pods. A non-empty selector is required.")
		if seen.Status.ObservedGeneration >= seen.Generation {
			return 0, nil
		}
		d := seen.DeepCopy()
		d.Status.ObservedGeneration = d.Generation
		_, err := r.Client.AppsV1().Deployments(d.Namespace).UpdateStatus(ctx, d, metav1.UpdateOptions{})
		return 0, ownerrefs.IgnoreLag(err)
	}
	owner := ownerrefs.Owner{
		Object: seen, Kind: kind, Selector: s,
		Read: func(ctx context.Context) (metav1.Object, error) {
			return r.Client.AppsV1().Deployments(seen.Namespace).Get(ctx, seen.Name, metav1.GetOptions{})
		},
	}
	sets, err := ownerrefs.Claim[*appsv1.ReplicaSet](ctx, r.sets.GetIndexer(), owner,
		func(ctx context.Context, name string, patch []byte) error {
			_, err := r.Client.AppsV1().ReplicaSets(seen.Namespace).Patch(ctx, name,
				types.StrategicMergePatchType, patch, metav1.PatchOptions{})
			return err
		})
	if err != nil {
		return 0, err
	}
	o := newRollout(r.Controller, seen, sets)
	err = ownerrefs.IgnoreLag(o.proceed(ctx))
	if o.again > 0 {
		r.queue.AddAfter(key, o.again)
	}
	return 0, err
}

func selectorOf(d *appsv1.Deployment) labels.Selector {
	s, err := selector(d)
	if err != nil {
		return nil
	}
	return s
}

// sameTemplate reports whether two templates make the same pods, apart from the label that tells
// ReplicaSets apart.
func sameTemplate(a, b *corev1.PodTemplateSpec) bool {
	return equality.Semantic.DeepEqual(withoutHash(a), withoutHash(b))
}

func withoutHash(t *corev1.PodTemplateSpec) *corev1.PodTemplateSpec {
	if _, ok := t.Labels[appsv1.DefaultDeploymentUniqueLabelKey]; !ok {
		return t
	}
	c := *t
	c.Labels = map[string]string{}
	for k, v := range t.Labels {
		if k != appsv1.DefaultDeploymentUniqueLabelKey {
			c.Labels[k] = v
		}
	}
	return &c
}
