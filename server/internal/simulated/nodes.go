package simulated

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
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
	// Client is used as kubelets would use it. Its user agent should make kubelet the field manager.
	Client    kubernetes.Interface
	Informers loop.Informers
	// Behaviors may be nil.
	Behaviors *Behaviors
	// Count is the number of nodes. If it is smaller than in an earlier run, the others are deleted.
	Count int
	// Capacity is that of each node, on top of [DefaultCapacity].
	Capacity corev1.ResourceList
	// Kinds are further nodes, which differ from those.
	Kinds []Kind
	// Version is the version of Kubernetes that the nodes report.
	Version string
	// JobDuration is how long the pods of Jobs run if their command does not say it. Default: 50 ms.
	JobDuration time.Duration
	// LeaseDuration is that of the nodes' leases. Default: a kubelet's 40 s.
	LeaseDuration time.Duration
}

// Nodes are the simulated nodes of a control plane.
type Nodes struct {
	Config
	ranges ranges
	queue  *loop.Queue
	pods   corelisters.PodLister
	nodes  corelisters.NodeLister

	mu sync.Mutex
	// byName has all nodes that are to be simulated, and byIndex the same ones by their indices.
	byName  map[string]*node
	byIndex map[int]*node
	// clocks are those of the pods that are running, by UID.
	clocks map[types.UID]clock
}

// node is the state of a simulated node. Nodes.mu guards what can change.
type node struct {
	name     string
	index    int
	kind     *Kind // nil if the node is of no kind
	capacity corev1.ResourceList
	// kindSet is true once the node has the labels and taints of its kind.
	kindSet bool
	// uid is that of the API object. It is empty while there is none, or if others registered it.
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
}

// New returns simulated nodes. It asks for their informers, which must be started before Run ends
// its wait for them.
func New(c Config) (*Nodes, error) {
	c.JobDuration = cmp.Or(c.JobDuration, 50*time.Millisecond)
	c.LeaseDuration = cmp.Or(c.LeaseDuration, 40*time.Second)
	c.Capacity = withDefaults(c.Capacity)
	all, largest := most(c.Count, c.Capacity, c.Kinds)
	n := &Nodes{
		Config: c,
		ranges: rangesFor(largest),
		queue:  loop.New("simulated-nodes"),
		byName: map[string]*node{}, byIndex: map[int]*node{},
		clocks: map[types.UID]clock{},
	}
	if err := Check(c.Count, c.Capacity, c.Kinds); err != nil {
		return nil, err
	}
	for i := range c.Count {
		n.add(prefix+strconv.Itoa(i), i, nil)
	}
	// The ranges of these nodes begin at the other end, so that more nodes without a kind do not move
	// them.
	for index, k := n.ranges.count()-1, 0; k < len(c.Kinds); k++ {
		for i := range c.Kinds[k].Count {
			n.add(prefix+c.Kinds[k].Name+"-"+strconv.Itoa(i), index, &c.Kinds[k])
			index--
		}
	}
	if all > 0 {
		pods := c.Informers.For(&corev1.Pod{})
		nodes := c.Informers.For(&corev1.Node{})
		n.pods = corelisters.NewPodLister(pods.GetIndexer())
		n.nodes = corelisters.NewNodeLister(nodes.GetIndexer())
	}
	return n, nil
}

func (n *Nodes) add(name string, index int, kind *Kind) {
	capacity := n.Capacity
	if kind != nil {
		capacity = kind.capacity(n.Capacity)
	}
	added := &node{
		name: name, index: index, kind: kind, capacity: capacity, missing: true,
		pods: map[string]types.UID{}, ips: n.ranges.pool(index),
	}
	n.byName[name], n.byIndex[index] = added, added
}

// poolOf returns the pool that a pod's address is from. A pod of an earlier start may have one
// that is in the range of another node by now, if the numbers of nodes by kind were others.
func (n *Nodes) poolOf(node *node, p *corev1.Pod) *pool {
	addr, err := netip.ParseAddr(p.Status.PodIP)
	if err != nil || node.ips.prefix.Contains(addr) {
		return &node.ips
	}
	if other, ok := n.byIndex[n.ranges.index(addr)]; ok && other.ips.prefix.Contains(addr) {
		return &other.ips
	}
	return &node.ips
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
	if len(n.byName) == 0 {
		return n.removeSurplus(ctx)
	}
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
	for name := range n.byName {
		n.queue.Add(name)
	}
	n.Behaviors.OnChange(n.behaviorChanged)
	defer n.Behaviors.OnChange(nil)
	var running sync.WaitGroup
	running.Go(func() { n.renewLeases(ctx) })
	running.Go(func() {
		if err := n.removeSurplus(ctx); err != nil && ctx.Err() == nil {
			utilruntime.HandleErrorWithContext(ctx, err, "Deleting surplus simulated nodes failed")
		}
	})
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
		if _, ok := n.byName[surplus.Name]; ok || !strings.HasPrefix(surplus.Name, prefix) {
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
	return 0, n.syncNode(ctx, n.byName[key])
}

// isSimulated reports whether an API object is a node of this package.
func isSimulated(found *corev1.Node) bool { return found.Labels[Label] == "true" }

func (n *Nodes) nodeSeen(found *corev1.Node) {
	node, ok := n.byName[found.Name]
	if !ok {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	uid, stopped := found.UID, found.Annotations[stoppedAnnotation] == "true"
	notReady := found.Annotations[notReadyAnnotation] == "true"
	if !isSimulated(found) {
		uid = ""
	}
	node.missing = false
	if uid != node.uid || stopped != node.stopped || notReady != node.notReady {
		node.uid, node.stopped, node.notReady = uid, stopped, notReady
		for key := range node.pods {
			n.queue.Enqueue(key)
		}
	}
	n.queue.Enqueue(found.Name)
}

// nodeGone lets a deleted node go. It comes back with the next start, as a kubelet registers its
// node when it starts. But after a reset of the control plane, when the informer finds out from a
// list that the node is gone, the node is missing by accident.
func (n *Nodes) nodeGone(obj any) {
	_, accident := obj.(cache.DeletedFinalStateUnknown)
	gone, ok := loop.Deleted(obj).(*corev1.Node)
	if !ok {
		return
	}
	if node, ok := n.byName[gone.Name]; ok {
		n.mu.Lock()
		defer n.mu.Unlock()
		node.uid, node.missing = "", accident
		if accident {
			n.queue.Enqueue(gone.Name)
		}
	}
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
			n.poolOf(node, old).release(old.UID)
			node.claims.remove(old.UID)
		}
		delete(n.clocks, old.UID)
	}
	if p == nil {
		return
	}
	if node, ok := n.byName[p.Spec.NodeName]; ok {
		node.pods[keyOf(p)] = p.UID
		if !ended(p) {
			n.poolOf(node, p).take(p.UID, p.Status.PodIP)
		} else {
			node.claims.remove(p.UID)
		}
		n.queue.Enqueue(keyOf(p))
	}
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
	node, ok := n.byName[p.Spec.NodeName]
	if !ok {
		return nil, false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return node, node.uid != "" && !node.stopped && (!node.notReady || p.DeletionTimestamp != nil)
}
