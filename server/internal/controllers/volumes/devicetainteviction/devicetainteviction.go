// Package devicetainteviction deletes the pods that use devices with NoExecute taints that their
// claims do not tolerate, or not any longer (KEP-5055). A taint comes from the driver, in a
// ResourceSlice, or from an administrator, in a DeviceTaintRule, whose status says how far that is.
package devicetainteviction

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/kinproc/kinproc/chain/features"
	"github.com/kinproc/kinproc/server/internal/controllers/loop"
	"github.com/kinproc/kinproc/server/internal/controllers/pods"
)

// Name is the name of the loop in kube-controller-manager.
const Name = "device-taint-eviction-controller"

const (
	// rulePrefix begins the keys of rules. The other keys are those of pods.
	rulePrefix = "rule:"
	// poolIndex is the index of slices by driver and pool.
	poolIndex = "pool"
	// rulePeriod is the shortest time between two changes of the status of a rule.
	rulePeriod = time.Second
)

// Loop is the loop that evicts pods because of their devices.
func Loop() loop.Loop {
	return loop.Loop{
		Name:     Name,
		Purpose:  "deletes pods that do not tolerate the taints of their devices",
		Workload: true, Workers: 4, Begin: begin, Gate: features.DRADeviceTaints,
		After: []schema.GroupResource{
			resourcev1.Resource("resourceclaims"), resourcev1.Resource("devicetaintrules"),
		},
	}
}

type controller struct {
	*loop.Controller
	pods, claims, published cache.SharedIndexInformer
	rules                   cache.SharedIndexInformer // nil if there are none

	mu sync.Mutex
	// pending are the pods that have to go, by their keys, and evicted is how many pods the loop
	// has deleted because of each rule. Both are guarded by mu.
	pending map[string]types.UID
	evicted map[types.UID]int
}

func begin(l *loop.Controller) loop.Work {
	c := &controller{
		Controller: l,
		pods:       l.Informer(&corev1.Pod{}),
		claims:     l.Informer(&resourcev1.ResourceClaim{}),
		published:  l.Informer(&resourcev1.ResourceSlice{}),
		pending:    map[string]types.UID{}, evicted: map[types.UID]int{},
	}
	published := loop.On(c.published, c.publishedChanged)
	published.Indexers = cache.Indexers{poolIndex: func(obj any) ([]string, error) {
		s := obj.(*resourcev1.ResourceSlice)
		return []string{s.Spec.Driver + "/" + s.Spec.Pool.Name}, nil
	}}
	work := loop.Work{Sync: c.sync, Watches: []loop.Watch{
		loop.On(c.pods, c.podChanged), loop.On(c.claims, c.claimChanged), published,
	}}
	if features.Enabled(features.DRADeviceTaintRules) {
		c.rules = l.Informer(&resourcev1beta2.DeviceTaintRule{})
		work.Watches = append(work.Watches, loop.On(c.rules, c.ruleChanged))
	}
	return work
}

func (c *controller) podChanged(old, p *corev1.Pod) {
	if p == nil {
		c.Add(loop.Key(old)) // to forget it
		return
	}
	if len(p.Spec.ResourceClaims) > 0 || p.Status.ExtendedResourceClaimStatus != nil {
		c.Enqueue(loop.Key(p))
	}
}

func (c *controller) claimChanged(old, claim *resourcev1.ResourceClaim) {
	c.addUsers(old)
	c.addUsers(claim)
}

// addUsers adds the pods for which a claim is reserved.
func (c *controller) addUsers(claim *resourcev1.ResourceClaim) {
	if claim == nil {
		return
	}
	for _, user := range claim.Status.ReservedFor {
		if user.APIGroup == "" && user.Resource == "pods" {
			c.Enqueue(claim.Namespace + "/" + user.Name)
		}
	}
}

// addUsersOf adds the pods that use some devices.
func (c *controller) addUsersOf(some func(*resourcev1.DeviceRequestAllocationResult) bool) {
	for _, obj := range c.claims.GetStore().List() {
		claim := obj.(*resourcev1.ResourceClaim)
		if slices.ContainsFunc(results(claim), func(r resourcev1.DeviceRequestAllocationResult) bool {
			return some(&r)
		}) {
			c.addUsers(claim)
		}
	}
}

// results returns the devices that are allocated to a claim.
func results(claim *resourcev1.ResourceClaim) []resourcev1.DeviceRequestAllocationResult {
	if claim.Status.Allocation == nil {
		return nil
	}
	return claim.Status.Allocation.Devices.Results
}

func (c *controller) publishedChanged(old, s *resourcev1.ResourceSlice) {
	if old != nil && s != nil && equality.Semantic.DeepEqual(old.Spec, s.Spec) {
		return
	}
	for _, s := range []*resourcev1.ResourceSlice{old, s} {
		if s != nil {
			c.addUsersOf(func(r *resourcev1.DeviceRequestAllocationResult) bool {
				return r.Driver == s.Spec.Driver && r.Pool == s.Spec.Pool.Name
			})
		}
	}
}

func (c *controller) ruleChanged(old, rule *resourcev1beta2.DeviceTaintRule) {
	if old != nil && rule != nil && old.UID == rule.UID &&
		equality.Semantic.DeepEqual(old.Spec, rule.Spec) {
		return
	}
	if rule != nil {
		c.Enqueue(rulePrefix + rule.Name)
	}
	if old != nil && (rule == nil || rule.UID != old.UID) {
		c.mu.Lock()
		delete(c.evicted, old.UID)
		c.mu.Unlock()
	}
	for _, rule := range []*resourcev1beta2.DeviceTaintRule{old, rule} {
		if rule != nil {
			c.addUsersOf(func(r *resourcev1.DeviceRequestAllocationResult) bool {
				return selects(rule, r.Driver, r.Pool, r.Device)
			})
		}
	}
}

func (c *controller) sync(ctx context.Context, key string) (time.Duration, error) {
	if rule, ok := strings.CutPrefix(key, rulePrefix); ok {
		return c.syncRule(ctx, rule)
	}
	p := loop.Get[corev1.Pod](c.pods, key)
	if p == nil || p.DeletionTimestamp != nil {
		if c.forget(key) {
			c.addRules()
		}
		return 0, nil
	}
	due := c.evictionOf(p, nil)
	if due == nil {
		if c.forget(key) {
			c.Recorder.Event(p, corev1.EventTypeNormal, "DeviceTaintManagerEviction",
				"Cancelling deletion")
			c.addRules()
		}
		return 0, nil
	}
	c.mu.Lock()
	isNew := c.pending[key] != p.UID
	c.pending[key] = p.UID
	c.mu.Unlock()
	if isNew {
		c.addRules()
	}
	if wait := time.Until(due.at); wait > 0 {
		return wait, nil
	}
	if err := c.evict(ctx, p); err != nil {
		return 0, loop.IgnoreChanged(err) // after a conflict, it is another pod, or comes again
	}
	c.mu.Lock()
	for rule := range due.rules {
		c.evicted[rule]++
	}
	c.mu.Unlock()
	return 0, nil
}

func (c *controller) forget(key string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.pending[key]
	delete(c.pending, key)
	return ok
}

// evict says why a pod is deleted, and deletes it.
func (c *controller) evict(ctx context.Context, p *corev1.Pod) error {
	client := c.Client.CoreV1().Pods(p.Namespace)
	marked := p.DeepCopy()
	pods.SetCondition(&marked.Status, corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue,
		Reason:             "DeletionByDeviceTaintManager",
		Message:            "Device Taint manager: deleting due to NoExecute taint",
		LastTransitionTime: metav1.Now(),
	})
	if _, err := client.UpdateStatus(ctx, marked, metav1.UpdateOptions{}); err != nil {
		return err
	}
	c.Recorder.Event(p, corev1.EventTypeNormal, "DeviceTaintManagerEviction",
		"Marking for deletion")
	return client.Delete(ctx, p.Name, metav1.DeleteOptions{
		Preconditions: metav1.NewUIDPreconditions(string(p.UID)),
	})
}
