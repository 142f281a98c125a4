// Package resourceclaims makes the ResourceClaims of pods from templates, reserves allocated claims
// for pods that were bound to a node without a scheduler, and frees claims that no pod uses anymore
// (KEP-4381).
package resourceclaims

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	corelisters "k8s.io/client-go/listers/core/v1"
	resourcelisters "k8s.io/client-go/listers/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
	"github.com/kinproc/kinproc/server/internal/controllers/pods"
)

// Name is the name of the loop in kube-controller-manager.
const Name = "resourceclaim-controller"

// claimPrefix begins the keys of claims. The other keys are those of pods.
const claimPrefix = "claim:"

// Loop is the loop of ResourceClaims.
func Loop() loop.Loop {
	return loop.Loop{
		Name: Name, Component: "resource_claim",
		Purpose:  "creates the ResourceClaims of pods, and frees those that no pod uses any more",
		Workload: true, Workers: 4, Begin: begin,
		// A pod may name a template that does not exist.
		After: []schema.GroupResource{corev1.Resource("pods"), resourcev1.Resource("resourceclaims")},
	}
}

type controller struct {
	*loop.Controller
	pods      corelisters.PodLister
	claims    resourcelisters.ResourceClaimLister
	templates resourcelisters.ResourceClaimTemplateLister
	made      made
}

func begin(l *loop.Controller) loop.Work {
	pods := l.Informer(&corev1.Pod{})
	claims := l.Informer(&resourcev1.ResourceClaim{})
	templates := l.Informer(&resourcev1.ResourceClaimTemplate{})
	c := &controller{
		Controller: l,
		pods:       corelisters.NewPodLister(pods.GetIndexer()),
		claims:     resourcelisters.NewResourceClaimLister(claims.GetIndexer()),
		templates:  resourcelisters.NewResourceClaimTemplateLister(templates.GetIndexer()),
	}
	return loop.Work{Sync: c.sync, Watches: []loop.Watch{
		loop.On(pods, c.podChanged),
		loop.On(claims, c.claimChanged),
		// A pod may be older than its template.
		loop.On(templates, func(_, t *resourcev1.ResourceClaimTemplate) {
			if t != nil {
				c.addPods(t.Namespace)
			}
		}),
	}}
}

func (c *controller) podChanged(old, pod *corev1.Pod) {
	gone := pod == nil
	if gone {
		pod = old
		c.made.forget(pod.UID)
	}
	if gone || done(pod) {
		for name := range resourceclaim.PodClaims(pod) {
			c.Enqueue(claimPrefix + pod.Namespace + "/" + name)
		}
	}
	if !gone {
		c.addPod(pod)
	}
}

func (c *controller) claimChanged(old, claim *resourcev1.ResourceClaim) {
	if claim != nil {
		c.Enqueue(claimPrefix + loop.Key(claim))
		c.addPods(claim.Namespace)
	} else {
		c.addPods(old.Namespace)
	}
}

// addPods adds the pods of a namespace that have claims to the queue.
func (c *controller) addPods(namespace string) {
	list, err := c.pods.Pods(namespace).List(labels.Everything())
	utilruntime.HandleError(err) // never happens
	for _, pod := range list {
		c.addPod(pod)
	}
}

func (c *controller) addPod(pod *corev1.Pod) {
	if len(pod.Spec.ResourceClaims) > 0 && pods.Active(pod) {
		c.Enqueue(loop.Key(pod))
	}
}

func (c *controller) sync(ctx context.Context, key string) (time.Duration, error) {
	object, isClaim := strings.CutPrefix(key, claimPrefix)
	namespace, name, _ := strings.Cut(object, "/")
	if isClaim {
		return 0, c.syncClaim(ctx, namespace, name)
	}
	return 0, c.syncPod(ctx, namespace, name)
}

// done reports whether a pod does not run and will not run.
func done(pod *corev1.Pod) bool {
	return pods.Finished(pod) || pod.DeletionTimestamp != nil && pod.Spec.NodeName == ""
}
