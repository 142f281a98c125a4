package scheduler

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	corelisters "k8s.io/client-go/listers/core/v1"
	policylisters "k8s.io/client-go/listers/policy/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"

	"golang.org/x/sync/errgroup"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
	"github.com/kinproc/kinproc/server/internal/requests/epoch"
)

// Name is the name of the scheduler among the loops.
const Name = "kube-scheduler"

// profile is the name by which pods ask for this scheduler.
const profile = corev1.DefaultSchedulerName

// maxRequests is how many pods are bound at once.
const maxRequests = 16

// Limits are how long the scheduler waits.
type Limits struct {
	// Patience is how long a pod waits for an event before it is tried anyway.
	Patience time.Duration
	// Devices is how long an attempt to allocate devices may take.
	Devices time.Duration
}

// Defaults are the limits of kube-scheduler, where Devices is a limit for each node.
func Defaults() Limits { return Limits{Patience: 5 * time.Minute, Devices: 10 * time.Second} }

// Loop is the scheduler.
func Loop(limits Limits) loop.Loop {
	return loop.Loop{
		Name: Name, Purpose: "assigns pods to nodes", Workload: true, UserAgent: Name + "/%s",
		After: []schema.GroupResource{corev1.Resource("pods")},
		Begin: func(c *loop.Controller) loop.Work {
			r := newRun(c, limits)
			return loop.Work{Run: r.run, End: r.stop, Watches: []loop.Watch{
				loop.On(c.Informer(&corev1.Node{}), r.nodeChanged),
				loop.On(c.Informer(&corev1.Pod{}), r.podChanged),
			}}
		},
	}
}

// run schedules until ctx ends.
func (r *run) run(ctx context.Context) error {
	defer r.allocations.Wait()
	if r.WaitForSync(ctx) != nil {
		return nil
	}
	stale := time.NewTicker(r.limits.Patience / 10)
	defer stale.Stop()
	for ctx.Err() == nil {
		r.mu.Lock()
		p := r.queue.pop()
		r.mu.Unlock()
		if p != nil {
			if err := r.schedule(epoch.Begin(ctx), p); err != nil && ctx.Err() == nil {
				return err
			}
			continue
		}
		select {
		case <-ctx.Done():
		case <-r.queue.wake:
		case <-stale.C:
			r.mu.Lock()
			r.queue.retryStale(r.limits.Patience)
			r.mu.Unlock()
		}
	}
	return nil
}

// run is the state of one run.
type run struct {
	*loop.Controller
	limits   Limits
	events   *recorder
	requests errgroup.Group // that bind pods or tell them why they are not bound
	lanes    []*lane        // for pods that need devices, the quick one first
	// allocations are the goroutines of these pods.
	allocations sync.WaitGroup

	mu      sync.Mutex
	cluster *cluster // guarded by mu
	queue   *queue   // guarded by mu
	// budgets is nil until a pod needs it, and guarded by mu.
	budgets policylisters.PodDisruptionBudgetLister
	// Volumes, devices and namespaces are nil until a pod needs them. They are set, under mu, by
	// the goroutine that schedules.
	volumes    *volumes
	devices    *devices
	namespaces corelisters.NamespaceLister
}

func newRun(c *loop.Controller, limits Limits) *run {
	r := &run{
		Controller: c, limits: limits, events: newRecorder(c.Client), cluster: newCluster(),
		lanes: newLanes(limits.Devices),
	}
	r.queue = newQueue(func(delay time.Duration, do func()) *time.Timer {
		return time.AfterFunc(delay, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			do()
		})
	})
	r.requests.SetLimit(maxRequests)
	return r
}

func (r *run) stop() {
	_ = r.requests.Wait() // the requests return no errors
	r.events.sending.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	for uid := range r.queue.pods {
		r.queue.remove(uid) // stops the timers
	}
}

// watch begins to watch more, and waits for the first lists.
func (r *run) watch(ctx context.Context, watches ...loop.Watch) error {
	if err := r.Watch(watches...); err != nil {
		return err
	}
	return r.WaitForSync(ctx)
}

// prepare starts the informers that are needed for the first time.
func (r *run) prepare(ctx context.Context, p *queued) error {
	r.mu.Lock()
	claims := len(p.claims)+len(p.inline) > 0
	selecting := p.selectsNamespaces() || r.cluster.selecting > 0
	r.mu.Unlock()
	if claims && r.volumes == nil {
		if err := r.watchVolumes(ctx); err != nil {
			return err
		}
	}
	if len(p.Spec.ResourceClaims)+len(p.extended) > 0 && r.devices == nil {
		if err := r.watchDevices(ctx); err != nil {
			return err
		}
	}
	if selecting && r.namespaces == nil {
		namespaces := r.Informer(&corev1.Namespace{})
		if err := r.watch(ctx, r.notify(namespaces, namespacesChanged)); err != nil {
			return err
		}
		r.mu.Lock()
		r.namespaces = corelisters.NewNamespaceLister(namespaces.GetIndexer())
		r.mu.Unlock()
	}
	return nil
}

func (r *run) watchVolumes(ctx context.Context) error {
	if err := r.watch(ctx,
		r.notify(r.Informer(&corev1.PersistentVolumeClaim{}), volumesChanged),
		r.notify(r.Informer(&corev1.PersistentVolume{}), volumesChanged),
		r.notify(r.Informer(&storagev1.StorageClass{}), volumesChanged),
		r.notify(r.Informer(&storagev1.CSIDriver{}), volumesChanged),
		r.notify(r.Informer(&storagev1.CSINode{}), volumesChanged),
		r.notify(r.Informer(&storagev1.CSIStorageCapacity{}), volumesChanged),
		r.notify(r.Informer(&storagev1.VolumeAttachment{}), volumesChanged),
	); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.volumes = &volumes{
		claims:  corelisters.NewPersistentVolumeClaimLister(r.Indexer(&corev1.PersistentVolumeClaim{})),
		volumes: corelisters.NewPersistentVolumeLister(r.Indexer(&corev1.PersistentVolume{})),
		classes: storagelisters.NewStorageClassLister(r.Indexer(&storagev1.StorageClass{})),
		drivers: storagelisters.NewCSIDriverLister(r.Indexer(&storagev1.CSIDriver{})),
		nodes:   storagelisters.NewCSINodeLister(r.Indexer(&storagev1.CSINode{})),
		capacities: storagelisters.NewCSIStorageCapacityLister(
			r.Indexer(&storagev1.CSIStorageCapacity{})),
		attachments: storagelisters.NewVolumeAttachmentLister(r.Indexer(&storagev1.VolumeAttachment{})),
	}
	return nil
}

func (r *run) watchBudgets(ctx context.Context) error {
	budgets := r.Informer(&policyv1.PodDisruptionBudget{})
	if err := r.watch(ctx, loop.Watch{Informer: budgets}); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.budgets = policylisters.NewPodDisruptionBudgetLister(budgets.GetIndexer())
	return nil
}

func (r *run) namespaceLabels(name string) labels.Set {
	if r.namespaces == nil {
		return nil
	}
	namespace, err := r.namespaces.Get(name)
	if err != nil {
		return nil
	}
	return namespace.Labels
}

// schedule tries to find a node for a pod. One that needs devices gets them meanwhile.
func (r *run) schedule(ctx context.Context, p *queued) error {
	if err := r.prepare(ctx, p); err != nil {
		return err
	}
	questions, err := r.decide(ctx, p, nil)
	if len(questions) > 0 {
		r.allocations.Go(func() { r.allocate(ctx, p) })
	}
	return err
}

// decide decides about a pod and makes the requests that follow from that, unless the allocator of
// devices must be asked about some nodes before.
func (r *run) decide(ctx context.Context, p *queued, s *search) ([]question, error) {
	d := r.try(ctx, p, s)
	if d.budgets {
		if err := r.watchBudgets(ctx); err != nil {
			return nil, err
		}
		d = r.try(ctx, p, s)
	}
	if d.follow != nil {
		r.requests.Go(func() error {
			d.follow()
			return nil
		})
	}
	return d.ask, nil
}

// decision is what comes of an attempt to find a node for a pod.
type decision struct {
	follow func() // makes the requests that follow; may be nil
	// To decide, the disruption budgets must be known, or the allocator asked about some nodes.
	budgets bool
	ask     []question
}

// try decides about a pod.
func (r *run) try(ctx context.Context, p *queued, s *search) decision {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.queue.has(p) {
		return decision{}
	}
	start := time.Now()
	defer func() { p.took = time.Since(start) }()
	info := p.pod
	if len(p.Spec.ResourceClaims) > 0 && r.devices.awaits(info) {
		r.queue.failed(p, devicesChanged)
		return decision{}
	}
	if p.binding {
		if err := r.devices.neverReady(info); err != nil {
			p.binding = false
			return decision{follow: func() { r.failed(ctx, p, info, err) }}
		}
	}
	if p.invalid != nil {
		f := &failure{nodes: len(r.cluster.order), whole: p.invalid.Error()}
		return decision{follow: func() { r.report(ctx, p, info, f, f.Error(), nil) }}
	}
	a := r.attempt(info, &p.wishes)
	a.search = s
	n, f := a.find()
	if ask := a.prepared.devices.ask; len(ask) > 0 {
		return decision{ask: ask}
	}
	if n != nil && len(a.prepared.bound.unbound) > 0 {
		chosen, _ := a.chooseVolumes(n)
		r.cluster.nominate(info, n.name) // keeps the room until the volumes are bound
		return decision{follow: func() { r.bindVolumes(ctx, p, info, n.name, chosen) }}
	}
	if n != nil {
		if s != nil && r.devices.outdated(s, s.answers[n.name].results) {
			*s = search{claims: s.claims}
			return decision{ask: []question{a.question(n)}}
		}
		reserved := a.reservations(n)
		for _, reservation := range reserved {
			if reservation.allocation != nil {
				r.devices.allocated[reservation.claim.UID] = reservation.allocation
			}
		}
		if a.awaitsConditions(reserved) {
			r.cluster.nominate(info, n.name)
			return decision{follow: func() { r.awaitConditions(ctx, p, info, n.name, reserved) }}
		}
		r.cluster.put(info, n.name, true)
		return decision{follow: func() { r.bind(ctx, p, info, n.name, reserved) }}
	}
	if p.slow = s != nil && s.timedOut; p.slow {
		p.tried = time.Now()
	}
	if f.nodes == 0 || f.err != nil {
		return decision{follow: func() { r.report(ctx, p, info, f, f.Error(), nil) }}
	}
	if f.early {
		// The first plugin of kube-scheduler that is asked for help is that for claims of devices.
		// It has not prepared anything, says that this was "not found", and no other plugin is
		// asked.
		return decision{follow: func() { r.report(ctx, p, info, f, f.Error()+" not found", nil) }}
	}
	message := a.ineligible(f)
	eligible := message == ""
	if eligible {
		var budgets []*policyv1.PodDisruptionBudget
		if len(f.open) > 0 && r.cluster.outranked(info.priority) {
			if r.budgets == nil {
				return decision{budgets: true}
			}
			budgets, _ = r.budgets.List(labels.Everything()) // never fails
		}
		chosen, why := a.preempt(f, budgets)
		if ask := a.prepared.devices.ask; len(ask) > 0 {
			return decision{ask: ask}
		}
		if chosen != nil {
			cleared := r.makeRoom(info, chosen)
			return decision{follow: func() {
				if err := r.evict(ctx, info, chosen, cleared); err != nil {
					utilruntime.HandleErrorWithContext(ctx, err, "Preempting pods failed, trying again",
						"pod", info.key())
					r.mu.Lock()
					p.seen |= podChanged
					r.mu.Unlock()
				}
				r.report(ctx, p, info, f, fmt.Sprintf(
					"%s preemption: found a potential placement for pod on node %s, preempting %d victims",
					f.Error(), chosen.node.name, len(chosen.victims)), &chosen.node.name)
			}}
		}
		message = why
	}
	var nominated *string
	if info.Status.NominatedNodeName == "" {
		r.cluster.unnominate(info.Pod)
	} else if eligible {
		r.cluster.unnominate(info.Pod)
		nominated = new(string)
	}
	text := f.Error()
	useless := a.deallocation()
	if useless != nil {
		text += " deallocation of ResourceClaim completed,"
	}
	stale := a.prepared.devices.stale
	if stale != nil {
		text += " deletion of ResourceClaim completed,"
	}
	text += " preemption: " + message
	return decision{follow: func() {
		if useless != nil {
			if err := r.deallocate(ctx, useless); err != nil {
				r.failed(ctx, p, info, err)
				return
			}
		}
		if stale != nil {
			if err := r.removeExtended(ctx, stale); err != nil {
				r.failed(ctx, p, info, err)
				return
			}
		}
		r.report(ctx, p, info, f, text, nominated)
	}}
}

func (r *run) attempt(p *pod, w *wishes) *attempt {
	return &attempt{
		pod: p, wishes: *w, cluster: r.cluster, namespaces: r.namespaceLabels, volumes: r.volumes,
		devices: r.devices,
	}
}

// makeRoom keeps the room on a node for a pod. It returns the pods for which it was kept before, if
// there is another victim than those that are leaving for them.
func (r *run) makeRoom(p *pod, chosen *preemption) (cleared []*pod) {
	more := slices.ContainsFunc(chosen.victims, func(v *placed) bool {
		return v.DeletionTimestamp == nil
	})
	for _, other := range r.cluster.nominated[chosen.node.name] {
		if more && other.priority < p.priority {
			cleared = append(cleared, other)
		}
	}
	for _, other := range cleared {
		r.cluster.unnominate(other.Pod)
		if known := r.queue.pods[other.UID]; known != nil {
			r.queue.happened(known, podChanged)
		}
	}
	r.cluster.nominate(p, chosen.node.name)
	return cleared
}
