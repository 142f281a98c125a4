// Package deployments rolls out Deployments: it makes a ReplicaSet for each version of the pod
// template, and moves the replicas from the old ones to the new one.
package deployments

import (
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
	"github.com/kinproc/kinproc/server/internal/controllers/ownerrefs"
	"github.com/kinproc/kinproc/server/internal/controllers/pods"
)

// Name is the name of the loop in kube-controller-manager.
const Name = "deployment-controller"

var kind = appsv1.SchemeGroupVersion.WithKind("Deployment")

// Loop is the loop of Deployments.
func Loop() loop.Loop {
	return loop.Loop{
		Name: Name, Alias: "deployment", Purpose: "rolls out Deployments",
		Workload: true, Workers: 4, Begin: begin,
		After: []schema.GroupResource{appsv1.Resource("deployments")},
	}
}

type controller struct {
	*loop.Controller
	deployments, sets, pods cache.SharedIndexInformer
}

func begin(l *loop.Controller) loop.Work {
	c := &controller{
		Controller:  l,
		deployments: l.Informer(&appsv1.Deployment{}),
		sets:        l.Informer(&appsv1.ReplicaSet{}),
		pods:        l.Informer(&corev1.Pod{}),
	}
	pods := loop.On(c.pods, c.podChanged)
	pods.Indexers = ownerrefs.Indexers()
	return loop.Work{Sync: c.sync, Watches: []loop.Watch{
		ownerrefs.OfOwners(c.deployments, c.Enqueue, func(metav1.Object) {}),
		{
			Informer: c.sets, Indexers: ownerrefs.Indexers(),
			Handler: &ownerrefs.Handler[*appsv1.ReplicaSet]{
				Kind:    kind.GroupKind(),
				Changed: func(key string, _, _ *appsv1.ReplicaSet) { c.Enqueue(key) },
				Orphan: func(rs *appsv1.ReplicaSet) {
					ownerrefs.Matching(c.deployments.GetIndexer(), rs,
						func(d *appsv1.Deployment) *metav1.LabelSelector { return d.Spec.Selector }, c.Enqueue)
				},
			},
		},
		pods,
	}}
}

func selector(d *appsv1.Deployment) (labels.Selector, error) {
	return metav1.LabelSelectorAsSelector(d.Spec.Selector)
}

// podChanged handles the end of a pod: a Deployment with the strategy Recreate waits for it.
func (c *controller) podChanged(old, pod *corev1.Pod) {
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
	rs := loop.Get[appsv1.ReplicaSet](c.sets, pod.Namespace+"/"+ref.Name)
	if rs == nil {
		return
	}
	owner := metav1.GetControllerOfNoCopy(rs)
	if owner == nil || owner.Kind != kind.Kind {
		return
	}
	key := pod.Namespace + "/" + owner.Name
	d := loop.Get[appsv1.Deployment](c.deployments, key)
	if d != nil && d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
		c.Enqueue(key)
	}
}

func (c *controller) sync(ctx context.Context, key string) (time.Duration, error) {
	seen := loop.Get[appsv1.Deployment](c.deployments, key)
	if seen == nil {
		return 0, nil
	}
	s := selectorOf(seen)
	if s == nil {
		return 0, nil // cannot get better before it changes
	}
	if s.Empty() {
		c.Recorder.Eventf(seen, corev1.EventTypeWarning, "SelectingAll",
			"This deployment is selecting all pods. A non-empty selector is required.")
		if seen.Status.ObservedGeneration >= seen.Generation {
			return 0, nil
		}
		d := seen.DeepCopy()
		d.Status.ObservedGeneration = d.Generation
		_, err := c.Client.AppsV1().Deployments(d.Namespace).UpdateStatus(ctx, d, metav1.UpdateOptions{})
		return 0, ownerrefs.IgnoreLag(err)
	}
	owner := ownerrefs.Owner{
		Object: seen, Kind: kind, Selector: s,
		Read: func(ctx context.Context) (metav1.Object, error) {
			return c.Client.AppsV1().Deployments(seen.Namespace).Get(ctx, seen.Name, metav1.GetOptions{})
		},
	}
	sets, err := ownerrefs.Claim[*appsv1.ReplicaSet](ctx, c.sets.GetIndexer(), owner,
		func(ctx context.Context, name string, patch []byte) error {
			_, err := c.Client.AppsV1().ReplicaSets(seen.Namespace).Patch(ctx, name,
				types.StrategicMergePatchType, patch, metav1.PatchOptions{})
			return err
		})
	if err != nil {
		return 0, err
	}
	o := newRollout(c, seen, sets)
	err = ownerrefs.IgnoreLag(o.proceed(ctx))
	return o.again, err
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
