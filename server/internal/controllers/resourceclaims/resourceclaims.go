// Package resourceclaims makes the ResourceClaims of pods from templates, reserves allocated claims
// for pods that were bound to a node without a scheduler, and frees claims that no pod uses anymore
// (KEP-4381).
//
//	err := resourceclaims.New(loop.Dependencies{…}).Run(ctx)
package resourceclaims

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	resourcelisters "k8s.io/client-go/listers/resource/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
	"github.com/kinproc/kinproc/server/internal/controllers/pods"
)

// Name is the name of the controller in kube-controller-manager.
const Name = "resourceclaim-controller"

const workers = 4

// key stands for a pod or for a claim.
type key struct {
	claim           bool
	namespace, name string
}

// Controller is the control loop.
type Controller struct {
	client    kubernetes.Interface
	recorder  record.EventRecorder
	pods      corelisters.PodLister
	claims    resourcelisters.ResourceClaimLister
	templates resourcelisters.ResourceClaimTemplateLister
	informers struct{ pods, claims, templates cache.SharedIndexInformer }
	queue     *loop.Of[key]
	made      made
}

// New returns a controller. The caller starts the informers.
func New(d loop.Dependencies) *Controller {
	pods, claims := d.Informers.Core().V1().Pods(), d.Informers.Resource().V1().ResourceClaims()
	templates := d.Informers.Resource().V1().ResourceClaimTemplates()
	c := &Controller{
		client: d.Client, recorder: d.Recorder,
		pods: pods.Lister(), claims: claims.Lister(), templates: templates.Lister(),
		queue: loop.NewOf[key](Name, 5*time.Second),
	}
	c.informers.pods, c.informers.claims = pods.Informer(), claims.Informer()
	c.informers.templates = templates.Informer()
	return c
}

// Run runs the controller until ctx ends. It returns when all goroutines of the controller have
// ended.
func (c *Controller) Run(ctx context.Context) error {
	var handlers loop.Handlers
	defer handlers.Remove()
	if err := errors.Join(
		handlers.Add(c.informers.pods, loop.OnChange(c.podChanged)),
		handlers.Add(c.informers.claims, loop.OnChange(c.claimChanged)),
		// A pod may be older than its template.
		handlers.Add(c.informers.templates, loop.OnChange(
			func(_, t *resourcev1.ResourceClaimTemplate) {
				if t != nil {
					c.addPods(t.Namespace)
				}
			})),
	); err != nil {
		return fmt.Errorf("%s: %w", Name, err)
	}
	return c.queue.Run(ctx, workers, c.sync, handlers.Synced()...)
}

func (c *Controller) podChanged(old, pod *corev1.Pod) {
	gone := pod == nil
	if gone {
		pod = old
		c.made.forget(pod.UID)
	}
	if gone || done(pod) {
		for name := range resourceclaim.PodClaims(pod) {
			c.queue.Soon(key{claim: true, namespace: pod.Namespace, name: name})
		}
	}
	if !gone {
		c.addPod(pod)
	}
}

func (c *Controller) claimChanged(old, claim *resourcev1.ResourceClaim) {
	if claim != nil {
		c.queue.Soon(key{claim: true, namespace: claim.Namespace, name: claim.Name})
		c.addPods(claim.Namespace)
	} else {
		c.addPods(old.Namespace)
	}
}

// addPods adds the pods of a namespace that have claims to the queue.
func (c *Controller) addPods(namespace string) {
	list, err := c.pods.Pods(namespace).List(labels.Everything())
	utilruntime.HandleError(err) // never happens
	for _, pod := range list {
		c.addPod(pod)
	}
}

func (c *Controller) addPod(pod *corev1.Pod) {
	if len(pod.Spec.ResourceClaims) > 0 && pods.Active(pod) {
		c.queue.Soon(key{namespace: pod.Namespace, name: pod.Name})
	}
}

func (c *Controller) sync(ctx context.Context, key key) (time.Duration, error) {
	if key.claim {
		return 0, c.syncClaim(ctx, key.namespace, key.name)
	}
	return 0, c.syncPod(ctx, key.namespace, key.name)
}

// done reports whether a pod does not run and will not run.
func done(pod *corev1.Pod) bool {
	return pods.Finished(pod) || pod.DeletionTimestamp != nil && pod.Spec.NodeName == ""
}
