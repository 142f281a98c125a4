// Package resourcequotas has the controller that keeps the status of ResourceQuotas: the limits
// that apply, and what is used of them.
//
// The admission plugin ResourceQuota adds to what is used before an object is stored. The
// controller counts what is there, first of all when a quota is new, and later when objects are
// deleted or need less.
package resourcequotas

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/client-go/tools/cache"

	evaluators "github.com/kinproc/kinproc/server/internal/admission/quota"
	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

const (
	// Name is the name of the controller in kube-controller-manager.
	Name = "resourcequota-controller"
	// ReduceAfter is how long after the last charge of a quota its usage may be reduced. The plugin
	// charges a quota before the object is stored, and a count in between would be too low. This
	// process knows when its requests have ended, but not when those of other replicas have.
	ReduceAfter = 250 * time.Millisecond
	// pause is the time between two counts for a quota whose objects change all the time.
	pause = 20 * time.Millisecond
	// again is when to look again for a resource that does not exist.
	again = time.Second
	// fresh is how long to rely on what discovery has said. It bounds the requests for quotas of
	// resources that do not exist.
	fresh = 100 * time.Millisecond
)

// Loop is the loop of ResourceQuotas. Charges are the requests of this process that charge quotas.
func Loop(charges *evaluators.Charges) loop.Loop {
	return loop.Loop{
		Name: Name, Alias: "resourcequota",
		Purpose: "maintains the status of ResourceQuotas",
		After:   []schema.GroupResource{corev1.Resource("resourcequotas")},
		Begin: func(l *loop.Controller) loop.Work {
			c := &controller{
				Controller: l, charges: charges, quotas: map[string]*known{},
				informer: l.Informer(&corev1.ResourceQuota{}),
			}
			c.resources = resources{
				controller: c, trackers: map[schema.GroupVersionResource]*tracker{},
				tracked: map[schema.GroupResource]schema.GroupVersionResource{},
			}
			return loop.Work{
				Sync: c.sync, Watches: []loop.Watch{loop.On(c.informer, c.quotaChanged)},
				End: c.resources.stop,
			}
		},
	}
}

type controller struct {
	*loop.Controller
	charges   *evaluators.Charges
	informer  cache.SharedIndexInformer // of quotas
	resources resources                 // that quotas limit

	mu     sync.Mutex
	quotas map[string]*known
}

// known is what the controller remembers of a quota.
type known struct {
	// version is the resource version up to which the rest is known.
	version string
	counted time.Time
	charged time.Time // when the plugin changed what is used
	// written is what the controller wrote as used, until the informer has seen it.
	written corev1.ResourceList
	// paying reports whether a request runs that may have charged the quota up to the version paid.
	paying func() bool
	paid   string
}

func (c *controller) known(key string) *known {
	if c.quotas[key] == nil {
		c.quotas[key] = &known{}
	}
	return c.quotas[key]
}

func (c *controller) quotaChanged(old, q *corev1.ResourceQuota) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if q == nil {
		key := loop.Key(old)
		delete(c.quotas, key)
		c.Add(key)
		return
	}
	key := loop.Key(q)
	k := c.known(key)
	if old == nil || !equality.Semantic.DeepEqual(old.Spec, q.Spec) ||
		!equality.Semantic.DeepEqual(q.Spec.Hard, q.Status.Hard) { // somebody else may write it
		c.Enqueue(key)
	}
	if old != nil && k.written != nil && quota.Equals(k.written, q.Status.Used) {
		k.written = nil
	} else if old != nil && !quota.Equals(old.Status.Used, q.Status.Used) {
		k.charged = time.Now()
		// The object that was paid for may have been refused.
		c.EnqueueAfter(key, ReduceAfter)
	}
	k.version = q.ResourceVersion
}

// changed has the quotas of a namespace counted. Less is set if objects may use less than before.
// What they use more has been charged, unless an object was on its way before its quota existed.
func (c *controller) changed(namespace string, less bool) {
	for _, q := range loop.InNamespace[corev1.ResourceQuota](c.informer, namespace) {
		if key := loop.Key(q); less {
			c.Add(key)
		} else {
			c.EnqueueAfter(key, ReduceAfter)
		}
	}
}

func (c *controller) sync(ctx context.Context, key string) (time.Duration, error) {
	q := loop.Get[corev1.ResourceQuota](c.informer, key)
	if q == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.quotas, key)
		return 0, nil
	}
	c.mu.Lock()
	k := c.known(key)
	now := time.Now()
	wait := k.counted.Add(pause).Sub(now)
	if k.version != q.ResourceVersion {
		wait = pause // quotaChanged has yet to see this version, and whether it was charged
	}
	if wait <= 0 {
		k.counted = now
	}
	early := k.charged.Add(ReduceAfter).Sub(now)
	c.mu.Unlock()
	if wait > 0 {
		return 0, loop.Poll(wait)
	}
	used, missing, err := c.usage(ctx, q, c.resources.cached(ctx))
	if q.Status.Hard == nil || less(used, q.Status.Used) {
		if early > 0 {
			return early, err
		}
		if k.paid != q.ResourceVersion {
			k.paying, k.paid = c.charges.Running(q.Namespace), q.ResourceVersion
		}
		if k.paying() {
			return 0, cmp.Or(err, error(loop.Poll(pause)))
		}
		// The objects of all charges up to this version are stored, if they ever are, but informers
		// may not have them yet. If there is another charge meanwhile, the write fails.
		used, missing, err = c.usage(ctx, q, c.resources.live(ctx))
	}
	if werr := c.write(ctx, k, q, used); werr != nil {
		return 0, errors.Join(werr, err)
	}
	if err == nil && missing {
		return 0, loop.Poll(again)
	}
	return 0, err
}

// less reports whether something is used less than before.
func less(used, before corev1.ResourceList) bool {
	for name, now := range used {
		if old, ok := before[name]; ok && now.Cmp(old) < 0 {
			return true
		}
	}
	return false
}

// usage returns what is used of a quota. What cannot be counted stays as it is. Missing is set if
// the quota limits a resource that does not exist.
func (c *controller) usage(
	ctx context.Context, q *corev1.ResourceQuota, lister quota.ListerForResourceFunc,
) (used corev1.ResourceList, missing bool, err error) {
	registry := generic.NewRegistry(evaluators.Configuration(lister).Evaluators())
	failed := map[string]error{} // by group, of which a quota may name many resources
	for hard := range q.Spec.Hard {
		what, ok := strings.CutPrefix(string(hard), "count/")
		resource := schema.ParseGroupResource(what)
		if !ok || registry.Get(resource) != nil {
			continue
		}
		found, ok, ferr := c.resources.find(ctx, resource)
		if ferr != nil {
			failed[resource.Group] = ferr
		} else if !ok {
			missing = true
		} else {
			registry.Add(generic.NewObjectCountEvaluator(resource,
				generic.ListResourceUsingListerFunc(lister, found), ""))
		}
	}
	counted, err := evaluators.Used(q, registry.List())
	used = quota.Add(corev1.ResourceList{}, q.Status.Used)
	maps.Copy(used, counted)
	err = errors.Join(err, errors.Join(slices.Collect(maps.Values(failed))...))
	return quota.Mask(used, quota.ResourceNames(q.Spec.Hard)), missing, err
}

func (c *controller) write(
	ctx context.Context, k *known, q *corev1.ResourceQuota, used corev1.ResourceList,
) error {
	if q.Status.Hard != nil && (q.Status.Used != nil || len(used) == 0) &&
		quota.Equals(used, q.Status.Used) && equality.Semantic.DeepEqual(q.Spec.Hard, q.Status.Hard) {
		return nil
	}
	q = q.DeepCopy()
	q.Status.Hard, q.Status.Used = q.Spec.Hard, used
	c.written(k, used)
	_, err := c.Client.CoreV1().ResourceQuotas(q.Namespace).UpdateStatus(ctx, q,
		metav1.UpdateOptions{})
	if err == nil {
		return nil
	}
	c.written(k, nil)
	if apierrors.IsConflict(err) {
		c.EnqueueAfter(loop.Key(q), pause) // it was charged
		return nil
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("update status of ResourceQuota %s/%s: %w", q.Namespace, q.Name, err)
}

func (c *controller) written(k *known, used corev1.ResourceList) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k.written = used
}
