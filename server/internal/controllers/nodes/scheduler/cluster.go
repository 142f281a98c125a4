package scheduler

import (
	"iter"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// cluster is what the scheduler knows of the nodes and the pods on them. Pods that are being bound
// are on their nodes already.
type cluster struct {
	nodes map[string]*node
	order []*node // the nodes that exist
	pods  map[types.UID]*placed
	// withTerms are the pods that prefer or require to be near other pods, or far from them, and
	// withAnti those among them that require to be far from some.
	withTerms, withAnti map[types.UID]*placed
	// nominated are the pods for which others were evicted, by node.
	nominated  map[string]map[types.UID]*pod
	priorities map[int32]int  // the number of pods on nodes by priority
	claims     map[string]int // the number of pods that use a volume claim
	owned      map[ownedInZone]int
	images     map[string]int // the number of nodes that have an image
	// selecting is the number of pods for which the labels of namespaces matter.
	selecting int
	// start is the index of the node that is looked at first. It moves, so that all nodes get their
	// turn when only a part of them is looked at.
	start int
}

// placed is a pod on a node.
type placed struct {
	*pod
	node *node
	// assumed is set until the informer has the pod on its node.
	assumed bool
}

// ownedInZone identifies the pods of one owner in a zone.
type ownedInZone struct {
	owner types.UID
	zone  string
}

// node is a node and the pods on it.
type node struct {
	*corev1.Node // nil if only pods of the node are known
	name         string
	zone         string
	allocatable  resources
	maxPods      int
	pods         map[types.UID]*placed
	requested    resources
	scored       resources
	ports        map[port]int
	owners       map[types.UID]int
	images       map[string]int64 // sizes by name
}

func newCluster() *cluster {
	return &cluster{
		nodes:      map[string]*node{},
		pods:       map[types.UID]*placed{},
		withTerms:  map[types.UID]*placed{},
		withAnti:   map[types.UID]*placed{},
		nominated:  map[string]map[types.UID]*pod{},
		priorities: map[int32]int{},
		claims:     map[string]int{},
		owned:      map[ownedInZone]int{},
		images:     map[string]int{},
	}
}

func (c *cluster) node(name string) *node {
	n := c.nodes[name]
	if n == nil {
		n = &node{
			name: name, pods: map[types.UID]*placed{}, ports: map[port]int{}, owners: map[types.UID]int{},
		}
		c.nodes[name] = n
	}
	return n
}

// setNode adds or changes a node.
func (c *cluster) setNode(obj *corev1.Node) {
	n := c.node(obj.Name)
	if n.Node == nil {
		c.order = append(c.order, n)
	}
	c.setImages(n, obj.Status.Images)
	n.Node = obj
	n.allocatable = resourcesOf(obj.Status.Allocatable)
	n.maxPods = int(obj.Status.Allocatable.Pods().Value())
	if zone := obj.Labels[corev1.LabelTopologyZone]; zone != n.zone {
		for _, p := range n.pods {
			c.own(p, -1)
		}
		n.zone = zone
		for _, p := range n.pods {
			c.own(p, +1)
		}
	}
}

// removeNode removes a node. Its pods are remembered until they are gone.
func (c *cluster) removeNode(name string) {
	n := c.nodes[name]
	if n == nil {
		return
	}
	c.setImages(n, nil)
	n.Node = nil
	c.order = slices.DeleteFunc(c.order, func(other *node) bool { return other == n })
	c.forgetIfEmpty(n)
}

func (c *cluster) forgetIfEmpty(n *node) {
	if n.Node == nil && len(n.pods) == 0 {
		delete(c.nodes, n.name)
	}
}

// put puts a pod on a node. It replaces an earlier state of the pod.
func (c *cluster) put(p *pod, nodeName string, assumed bool) {
	c.remove(p.UID)
	c.unnominate(p.Pod)
	on := &placed{pod: p, node: c.node(nodeName), assumed: assumed}
	c.pods[p.UID] = on
	c.attach(on)
}

// attach adds a pod to its node and to everything that counts pods.
func (c *cluster) attach(p *placed) {
	n := p.node
	n.pods[p.UID] = p
	n.requested.add(&p.requests, 1)
	n.scored.add(&p.scored, 1)
	for _, port := range p.ports {
		n.ports[port]++
	}
	if p.hasTerms() {
		c.withTerms[p.UID] = p
		if p.selectsNamespaces() {
			c.selecting++
		}
		if len(p.antiAffinity) > 0 {
			c.withAnti[p.UID] = p
		}
	}
	c.count(p, +1)
}

// detach undoes attach.
func (c *cluster) detach(p *placed) {
	n := p.node
	delete(n.pods, p.UID)
	n.requested.add(&p.requests, -1)
	n.scored.add(&p.scored, -1)
	for _, port := range p.ports {
		if n.ports[port]--; n.ports[port] == 0 {
			delete(n.ports, port)
		}
	}
	if p.hasTerms() {
		delete(c.withTerms, p.UID)
		delete(c.withAnti, p.UID)
		if p.selectsNamespaces() {
			c.selecting--
		}
	}
	c.count(p, -1)
}

func (c *cluster) count(p *placed, by int) {
	add(c.priorities, p.priority, by)
	for _, claim := range p.claims {
		add(c.claims, p.Namespace+"/"+claim.name, by)
	}
	if p.owner != "" {
		add(p.node.owners, p.owner, by)
		c.own(p, by)
	}
}

func (c *cluster) own(p *placed, by int) {
	if p.owner != "" && p.node.zone != "" {
		add(c.owned, ownedInZone{p.owner, p.node.zone}, by)
	}
}

func add[K comparable](counts map[K]int, key K, by int) {
	if counts[key] += by; counts[key] == 0 {
		delete(counts, key)
	}
}

// remove removes a pod from its node. It returns nil if the pod is on none.
func (c *cluster) remove(uid types.UID) *placed {
	p := c.pods[uid]
	if p == nil {
		return nil
	}
	delete(c.pods, uid)
	c.detach(p)
	c.forgetIfEmpty(p.node)
	return p
}

// nominate keeps room for a pod on a node. Pods of a lower priority do not get it.
func (c *cluster) nominate(p *pod, nodeName string) {
	c.unnominate(p.Pod)
	if c.nominated[nodeName] == nil {
		c.nominated[nodeName] = map[types.UID]*pod{}
	}
	c.nominated[nodeName][p.UID] = p
}

func (c *cluster) unnominate(p *corev1.Pod) {
	for name, pods := range c.nominated {
		delete(pods, p.UID)
		if len(pods) == 0 {
			delete(c.nominated, name)
		}
	}
}

// placed returns the pods on nodes that exist.
func (c *cluster) placed() iter.Seq[*placed] {
	return func(yield func(*placed) bool) {
		for _, n := range c.order {
			for _, p := range n.pods {
				if !yield(p) {
					return
				}
			}
		}
	}
}

// outranked reports whether there is a pod on a node whose priority is lower.
func (c *cluster) outranked(priority int32) bool {
	for other := range c.priorities {
		if other < priority {
			return true
		}
	}
	return false
}
