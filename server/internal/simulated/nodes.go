package simulated

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

const (
	// Label is on every simulated node, with the value "true". Package legacy of the built-in kinds
	// knows it too, to answer for the kubelet.
	Label = "kinproc.dev/simulated"
	// Condition is the type of the condition that says that a node is simulated.
	Condition corev1.NodeConditionType = "kinproc.dev/Simulated"

	prefix = "simulated-"
	// workers is how many pods and nodes are worked on at once. A worker mostly waits for etcd.
	workers = 16
)

// Config says which nodes to simulate.
type Config struct {
	// Client is used as kubelets would use it. Its user agent should make kubelet the field
	// manager.
	Client    kubernetes.Interface
	Informers loop.Informers
	// Behaviors may be nil.
	Behaviors *Behaviors
	// Count is the number of nodes to make. If it is smaller than in an earlier run, the others are
	// deleted, unless SurplusStays is set.
	Count        int
	SurplusStays bool
	// Marks say which nodes that others make are simulated too.
	Marks Marks
	// Capacity is that of each node, on top of [DefaultCapacity].
	Capacity corev1.ResourceList
	// Kinds are further nodes, which differ from those.
	Kinds []Kind
	// Version is the version of Kubernetes that the nodes report.
	Version string
	// JobDuration is how long the pods of Jobs run if their command does not say it. Default: 50
	// ms.
	JobDuration time.Duration
	// LeaseDuration is that of the nodes' leases. Default: a kubelet's 40 s.
	LeaseDuration time.Duration
}

// Nodes are the simulated nodes of a control plane.
type Nodes struct {
	Config
	ranges ranges
	queue  *loop.Queue
	leases *loop.Queue
	pods   corelisters.PodLister
	nodes  corelisters.NodeLister

	mu sync.Mutex
	// byName has the nodes to make, all others that exist, and those that pods are bound to. A node
	// may be marked at any time, and then finds its pods here.
	byName map[string]*node
	// byIndex has the nodes by the ranges of addresses that are theirs, and nextIndex is the range
	// to give to another one.
	byIndex   map[int]*node
	nextIndex int
	// working is how many nodes have a uid.
	working int
	// clocks are those of the pods that are running, by UID.
	clocks map[types.UID]clock
}

// node is the state of a node. Nodes.mu guards what can change.
type node struct {
	name string
	// own nodes are made by this package. Only they have a kind and a capacity.
	own      bool
	kind     *Kind // nil if the node is of no kind
	capacity corev1.ResourceList
	// indices are the ranges of addresses of the node. A node of others may have none yet. The
	// first one, index, is also that of the node's own address. It does not change.
	indices []int
	index   int
	// address is what the node has in its status, which its maker may have chosen.
	address string
	// prepared is true once the node has the labels and taints of its kind, or those that a kubelet
	// gives to a node of others.
	prepared bool
	// exists is true while there is an API object.
	exists bool
	// uid is that of the API object. It is empty while there is none, or if it is not simulated.
	uid types.UID
	// stopped nodes do nothing, so that they look like nodes that cannot be reached.
	stopped bool
	// missing nodes are to be registered. One that somebody has deleted is not.
	missing bool
	// notReady nodes only stop pods. The controller of nodes says that the others are not ready.
	notReady bool
	pods     map[string]types.UID // of the pods that are bound to the node, by their keys
	ips      pool
	claims   claims
	// lease is only used by the worker that has the lease of the node.
	lease lease
}

// New returns simulated nodes. It asks for their informers, which must be started before Run ends
// its wait for them.
func New(c Config) (*Nodes, error) {
	c.JobDuration = cmp.Or(c.JobDuration, 50*time.Millisecond)
	c.LeaseDuration = cmp.Or(c.LeaseDuration, 40*time.Second)
	c.Capacity = withDefaults(c.Capacity)
	_, largest := most(c.Count, c.Capacity, c.Kinds)
	n := &Nodes{
		Config: c,
		ranges: rangesFor(largest),
		queue:  loop.New("simulated-nodes"),
		leases: loop.New("simulated-node-leases"),
		byName: map[string]*node{}, byIndex: map[int]*node{},
		clocks: map[types.UID]clock{},
	}
	if err := Check(c.Count, c.Capacity, c.Kinds); err != nil {
		return nil, err
	}
	for i := range c.Count {
		n.add(prefix+strconv.Itoa(i), i, nil)
	}
	// The ranges of these nodes begin at the other end, so that more nodes without a kind do not
	// move them.
	for index, k := n.ranges.count()-1, 0; k < len(c.Kinds); k++ {
		for i := range c.Kinds[k].Count {
			n.add(prefix+c.Kinds[k].Name+"-"+strconv.Itoa(i), index, &c.Kinds[k])
			index--
		}
	}
	n.nextIndex = c.Count % n.ranges.count()
	n.pods = corelisters.NewPodLister(c.Informers.For(&corev1.Pod{}).GetIndexer())
	n.nodes = corelisters.NewNodeLister(c.Informers.For(&corev1.Node{}).GetIndexer())
	return n, nil
}

func (n *Nodes) add(name string, index int, kind *Kind) {
	capacity := n.Capacity
	if kind != nil {
		capacity = kind.capacity(n.Capacity)
	}
	added := &node{
		name: name, own: true, kind: kind, capacity: capacity, missing: true,
		pods: map[string]types.UID{}, address: n.ranges.host(index).String(),
	}
	n.byName[name] = added
	n.reserve(added, index)
}

// nodeOf returns the state of the node with a name. Nodes.mu is held.
func (n *Nodes) nodeOf(name string) *node {
	if n.byName[name] == nil {
		n.byName[name] = &node{name: name, pods: map[string]types.UID{}}
	}
	return n.byName[name]
}

// forget forgets a node that others have made, once it and its pods are gone. Nodes.mu is held.
func (n *Nodes) forget(node *node) {
	if node.own || node.exists || len(node.pods) > 0 || len(node.ips.of) > 0 ||
		n.byName[node.name] != node { // a worker may still have one that is forgotten
		return
	}
	delete(n.byName, node.name)
	for _, index := range node.indices {
		delete(n.byIndex, index)
	}
}

// Check returns an error if there cannot be so many nodes with such a capacity, or such kinds.
func Check(count int, capacity corev1.ResourceList, kinds []Kind) error {
	if err := checkKinds(kinds); err != nil {
		return err
	}
	all, largest := most(count, capacity, kinds)
	return rangesFor(largest).check(all)
}

// Run simulates the nodes until ctx ends.
func (n *Nodes) Run(ctx context.Context) error {
	var handlers loop.Handlers
	defer handlers.Remove()
	if err := errors.Join(
		handlers.Add(loop.Watch{
			Informer: n.Informers.For(&corev1.Node{}),
			Handler: cache.ResourceEventHandlerFuncs{
				AddFunc:    func(obj any) { n.nodeSeen(obj.(*corev1.Node)) },
				UpdateFunc: func(_, obj any) { n.nodeSeen(obj.(*corev1.Node)) },
				DeleteFunc: n.nodeGone,
			},
		}),
		handlers.Add(loop.On(n.Informers.For(&corev1.Pod{}), n.podChanged)),
	); err != nil {
		return fmt.Errorf("simulated nodes: %w", err)
	}
	if !cache.WaitFor(ctx, "", handlers.Synced()...) {
		return nil
	}
	n.mu.Lock()
	for name, node := range n.byName {
		if node.own {
			n.queue.Add(name)
		}
	}
	n.mu.Unlock()
	n.Behaviors.OnChange(n.behaviorChanged)
	defer n.Behaviors.OnChange(nil)
	var running sync.WaitGroup
	running.Go(func() { _ = n.leases.Run(ctx, workers, n.renewLease) }) // it never fails
	if !n.SurplusStays {
		running.Go(func() {
			if err := n.removeSurplus(ctx); err != nil && ctx.Err() == nil {
				utilruntime.HandleErrorWithContext(ctx, err, "Deleting surplus simulated nodes failed")
			}
		})
	}
	err := n.queue.Run(ctx, workers, n.sync)
	running.Wait()
	return err
}

// removeSurplus deletes the nodes of an earlier run that had more of them.
func (n *Nodes) removeSurplus(ctx context.Context) error {
	client := n.Client.CoreV1().Nodes()
	list, err := client.List(ctx, metav1.ListOptions{
		LabelSelector: labels.Set{Label: "true"}.String(),
	})
	if err != nil {
		return err
	}
	for i := range list.Items {
		surplus := &list.Items[i]
		if !isOwn(surplus) || n.makes(surplus.Name) {
			continue
		}
		err := client.Delete(ctx, surplus.Name, metav1.DeleteOptions{
			Preconditions: metav1.NewUIDPreconditions(string(surplus.UID)),
		})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// sync works on a node or, if the key has a namespace, on a pod.
func (n *Nodes) sync(ctx context.Context, key string) (time.Duration, error) {
	if namespace, name, ok := strings.Cut(key, "/"); ok {
		return n.syncPod(ctx, namespace, name)
	}
	return 0, n.syncNode(ctx, key)
}

// makes reports whether a name is that of a node to make.
func (n *Nodes) makes(name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	node, ok := n.byName[name]
	return ok && node.own
}

// simulates reports whether a node is simulated. Those of an earlier run that had more nodes are
// not. Nodes.mu is held.
func (n *Nodes) simulates(node *node, found *corev1.Node) bool {
	return n.Marks.Simulates(found) && (node.own || !isOwn(found))
}

func (n *Nodes) nodeSeen(found *corev1.Node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	node := n.nodeOf(found.Name)
	node.exists, node.missing = true, false
	address := node.address
	if !node.own {
		n.reserveOf(node, found)
		address = addressOf(found)
	}
	uid, stopped := found.UID, found.Annotations[stoppedAnnotation] == "true"
	notReady := found.Annotations[notReadyAnnotation] == "true"
	if !n.simulates(node, found) {
		uid = ""
	}
	if uid == "" && node.uid == "" {
		return // it is left alone
	}
	if uid != node.uid || stopped != node.stopped || notReady != node.notReady ||
		address != node.address {
		node.prepared = node.prepared && uid == node.uid
		n.setUID(node, uid)
		node.stopped, node.notReady, node.address = stopped, notReady, address
		n.wake(node)
		n.leases.Enqueue(found.Name)
	}
	n.queue.Enqueue(found.Name)
}

// setUID notes that a node is simulated, or is not if the UID is empty. Nodes.mu is held.
func (n *Nodes) setUID(node *node, uid types.UID) {
	if node.uid != "" {
		n.working--
	}
	if uid != "" {
		n.working++
	}
	node.uid = uid
}

// wake looks at all pods of a node again. Nodes.mu is held.
func (n *Nodes) wake(node *node) {
	for key := range node.pods {
		n.queue.Enqueue(key)
	}
}

// nodeGone lets a deleted node go. If it is one to make, it comes back with the next start, as a
// kubelet registers its node when it starts. But after a reset of the control plane, when the
// informer finds out from a list that the node is gone, the node is missing by accident.
func (n *Nodes) nodeGone(obj any) {
	_, accident := obj.(cache.DeletedFinalStateUnknown)
	gone, ok := loop.Deleted(obj).(*corev1.Node)
	if !ok {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	node := n.nodeOf(gone.Name)
	n.setUID(node, "")
	node.exists, node.missing = false, accident && node.own
	if node.missing {
		n.queue.Enqueue(gone.Name)
	}
	n.forget(node)
}

// keyOf returns the key of a pod in the queue.
func keyOf(p *corev1.Pod) string { return p.Namespace + "/" + p.Name }

// podChanged notes what pods are bound to which nodes, and frees what a pod had that is gone. If
// the informer was late, a pod may have been replaced by another one of the same name.
func (n *Nodes) podChanged(old, p *corev1.Pod) {
	if p != nil {
		n.claim(p)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if old != nil && (p == nil || p.UID != old.UID) {
		if node, ok := n.byName[old.Spec.NodeName]; ok {
			delete(node.pods, keyOf(old))
			node.claims.remove(old.UID)
			n.free(node, old)
		}
		delete(n.clocks, old.UID)
	}
	if p == nil || p.Spec.NodeName == "" {
		return
	}
	node := n.nodeOf(p.Spec.NodeName)
	node.pods[keyOf(p)] = p.UID
	if !ended(p) {
		n.take(node, p)
	} else {
		node.claims.remove(p.UID)
	}
	if node.uid != "" {
		n.queue.Enqueue(keyOf(p))
	}
}

// free frees the address of a pod. Nodes.mu is held.
func (n *Nodes) free(node *node, p *corev1.Pod) {
	holder := n.holder(node, p)
	holder.ips.release(p.UID)
	n.forget(holder)
	n.forget(node)
}

// behaviorChanged looks at all pods of a namespace again.
func (n *Nodes) behaviorChanged(namespace string) {
	pods, err := n.pods.Pods(namespace).List(labels.Everything())
	if err != nil {
		return // cannot happen: the lister reads from memory
	}
	for _, p := range pods {
		n.queue.Enqueue(keyOf(p))
	}
}

// host returns the node of a pod if it is simulated and has something to do for the pod.
func (n *Nodes) host(p *corev1.Pod) (*node, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	node, ok := n.byName[p.Spec.NodeName]
	if !ok {
		return nil, false
	}
	return node, node.uid != "" && len(node.indices) > 0 && node.address != "" && !node.stopped &&
		(!node.notReady || p.DeletionTimestamp != nil)
}
