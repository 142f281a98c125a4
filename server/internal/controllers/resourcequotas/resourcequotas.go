// Package resourcequotas has the controller that keeps the status of ResourceQuotas: the limits
// that apply, and what is used of them.
//
// The admission plugin ResourceQuota adds to what is used before an object is stored. The
// controller counts what is there, first of all when a quota is new, and later when objects are
// deleted or need less.
package resourcequotas

import (
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
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	evaluators "github.com/kinproc/kinproc/server/internal/admission/quota"
	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

const (
	// Name is the name of the controller in kube-controller-manager.
	Name = "resourcequota-controller"
	// Settle is how long after the last charge of a quota its usage may be reduced. The plugin charges
	// a quota before the object is stored, and a count in between would be too low. This process knows
	// when its requests have ended, but not when those of other replicas have.
	Settle = 250 * time.Millisecond
	// pause is the time between two counts for a quota whose objects change all the time.
	pause = 20 * time.Millisecond
	// again is when to look again for a resource that does not exist.
	again = time.Second
	// fresh is how long to rely on what discovery has said. It bounds the requests for quotas of
	// resources that do not exist.
	fresh = 100 * time.Millisecond
)

// Dependencies are what the controller needs.
type Dependencies struct {
	Client   kubernetes.Interface
	Metadata metadata.Interface
	// Informers is a factory. The controller starts the informers of the resources that quotas limit.
	Informers informers.SharedInformerFactory
	// Charges are the requests of this process that charge quotas.
	Charges *evaluators.Charges
}

// Controller keeps the status of quotas.
type Controller struct{ Dependencies }

// New returns a controller. Whoever made the informers starts them.
func New(d Dependencies) *Controller {
	d.Informers.Core().V1().ResourceQuotas().Informer()
	return &Controller{d}
}

// run is the state of one call of Run.
type run struct {
	*Controller
	queue     *loop.Queue
	handlers  loop.Handlers
	resources resources // that quotas limit

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

// Run runs the controller until ctx ends. It returns when all goroutines of the controller have
// ended.
func (c *Controller) Run(ctx context.Context) error {
	r := &run{Controller: c, queue: loop.New(Name), quotas: map[string]*known{}}
	r.resources = resources{
		run: r, ctx: ctx, trackers: map[schema.GroupVersionResource]*tracker{},
		tracked: map[schema.GroupResource]schema.GroupVersionResource{},
	}
	defer r.resources.stop()
	defer r.handlers.Remove()
	if err := r.handlers.Add(c.Informers.Core().V1().ResourceQuotas().Informer(),
		loop.OnChange(r.quotaChanged)); err != nil {
		return fmt.Errorf("%s: %w", Name, err)
	}
	return r.queue.Run(ctx, 1, r.sync, r.handlers.Synced()...)
}

func (r *run) known(key string) *known {
	if r.quotas[key] == nil {
		r.quotas[key] = &known{}
	}
	return r.quotas[key]
}

func (r *run) quotaChanged(old, q *corev1.ResourceQuota) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if q == nil {
		key := cache.MetaObjectToName(old).String()
		delete(r.quotas, key)
		r.queue.Add(key)
		return
	}
	key := cache.MetaObjectToName(q).String()
	k := r.known(key)
	if old == nil || !equality.Semantic.DeepEqual(old.Spec, q.Spec) ||
		!equality.Semantic.DeepEqual(q.Spec.Hard, q.Status.Hard) { // somebody else may write it
		r.queue.Soon(key)
	}
	if old != nil && k.written != nil && quota.Equals(k.written, q.Status.Used) {
		k.written = nil
	} else if old != nil && !quota.Equals(old.Status.Used, q.Status.Used) {
		k.charged = time.Now()
		// The object that was paid for may have been refused.
		r.queue.AddAfter(key, Settle)
	}
	k.version = q.ResourceVersion
}

// changed has the quotas of a namespace counted. Less is set if objects may use less than before.
// What they use more has been charged, unless an object was on its way before its quota existed.
func (r *run) changed(namespace string, less bool) {
	quotas, err := r.Informers.Core().V1().ResourceQuotas().Lister().ResourceQuotas(namespace).
		List(labels.Everything())
	if err != nil {
		return // a cache does not fail
	}
	for _, q := range quotas {
		if key := cache.MetaObjectToName(q).String(); less {
			r.queue.Add(key)
		} else {
			r.queue.AddAfter(key, Settle)
		}
	}
}

func (r *run) sync(ctx context.Context, key string) (time.Duration, error) {
	name, err := cache.ParseObjectName(key)
	if err != nil {
		return 0, err
	}
	q, err := r.Informers.Core().V1().ResourceQuotas().Lister().ResourceQuotas(name.Namespace).
		Get(name.Name)
	if apierrors.IsNotFound(err) {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.quotas, key)
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	r.mu.Lock()
	k := r.known(key)
	now := time.Now()
	wait := k.counted.Add(pause).Sub(now)
	if k.version != q.ResourceVersion {
		wait = pause // quotaChanged has yet to see this version, and whether it was charged
	}
	if wait <= 0 {
		k.counted = now
	}
	settled := k.charged.Add(Settle).Sub(now)
	r.mu.Unlock()
	if wait > 0 {
		return wait, nil
	}
	used, missing, err := r.usage(ctx, q, r.resources.lister)
	if q.Status.Hard == nil || less(used, q.Status.Used) {
		if settled > 0 {
			return settled, err
		}
		if k.paid != q.ResourceVersion {
			k.paying, k.paid = r.Charges.Running(q.Namespace), q.ResourceVersion
		}
		if k.paying() {
			return pause, err
		}
		// The objects of all charges up to this version are stored, if they ever are, but informers may
		// not have them yet. If there is another charge meanwhile, the write fails.
		used, missing, err = r.usage(ctx, q, r.resources.live(ctx))
	}
	if werr := r.write(ctx, k, q, used); werr != nil {
		return 0, errors.Join(werr, err)
	}
	if err == nil && missing {
		return again, nil
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
func (r *run) usage(
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
		found, ok, ferr := r.resources.find(ctx, resource)
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

func (r *run) write(
	ctx context.Context, k *known, q *corev1.ResourceQuota, used corev1.ResourceList,
) error {
	if q.Status.Hard != nil && (q.Status.Used != nil || len(used) == 0) &&
		quota.Equals(used, q.Status.Used) && equality.Semantic.DeepEqual(q.Spec.Hard, q.Status.Hard) {
		return nil
	}
	q = q.DeepCopy()
	q.Status.Hard, q.Status.Used = q.Spec.Hard, used
	r.written(k, used)
	_, err := r.Client.CoreV1().ResourceQuotas(q.Namespace).UpdateStatus(ctx, q,
		metav1.UpdateOptions{})
	if err == nil {
		return nil
	}
	r.written(k, nil)
	if apierrors.IsConflict(err) {
		r.queue.AddAfter(cache.MetaObjectToName(q).String(), pause) // it was charged
		return nil
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("update status of ResourceQuota %s/%s: %w", q.Namespace, q.Name, err)
}

func (r *run) written(k *known, used corev1.ResourceList) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k.written = used
}
