package garbagecollector

import (
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// node is an object that has owners or dependents, or that waits for dependents. Its fields are
// guarded by the graph's mutex.
type node struct {
	uid types.UID
	// object is nil if nothing is known but that dependents name the UID, or if the object is gone.
	object *object
	// gone is the last state of an object that is gone.
	gone *object
	// key is where the object is stored, or remoteKey.
	key string
	// dependents are the nodes that have a reference with the UID.
	dependents map[*node]struct{}
	// absent holds where the object is known not to be.
	absent map[coordinates]struct{}
}

// String returns the UID, for reports of errors.
func (n *node) String() string { return string(n.uid) }

// change is a change of a stored object. A deletion has no object.
type change struct {
	key      string
	object   *object
	revision int64
}

// graph knows who owns whom. It applies the changes of stored objects in the order in which they
// happened, and those of a transaction at once.
type graph struct {
	// soon has a node processed.
	soon func(*node)

	mu       sync.Mutex
	nodes    map[types.UID]*node
	keys     map[string]*node // of objects that exist
	revision int64            // of the last change that was applied
	listing  bool
	batch    []change
}

func newGraph(soon func(*node)) *graph {
	return &graph{soon: soon, nodes: map[types.UID]*node{}, keys: map[string]*node{}}
}

// restart says that all stored objects follow.
func (g *graph) restart() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.listing, g.batch = true, nil
}

// add adds a change to the ones that done applies.
func (g *graph) add(c change) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.listing && c.object != nil && !c.object.concerns() && g.keys[c.key] == nil &&
		g.nodes[c.object.uid] == nil {
		return
	}
	g.batch = append(g.batch, c)
}

// done applies the changes.
func (g *graph) done(revision int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var seen map[string]struct{}
	if g.listing {
		seen = map[string]struct{}{}
	}
	for _, c := range g.batch {
		if c.object != nil {
			g.put(c.key, c.object)
		} else if n := g.keys[c.key]; n != nil && n.object.revision < c.revision {
			g.remove(n)
		}
		if g.listing {
			seen[c.key] = struct{}{}
		}
	}
	if g.listing {
		for key, n := range g.keys {
			if _, ok := seen[key]; !ok && !strings.HasPrefix(key, remotePrefix) {
				g.remove(n)
			}
		}
	}
	g.revision, g.listing, g.batch = revision, false, nil
}

// observe adds an owner that was looked up at a revision. It returns false if the graph may have
// dropped later changes of the owner.
func (g *graph) observe(key string, o *object, revision int64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.listing || g.revision > revision {
		return false
	}
	g.put(key, o)
	return true
}

// update applies a change of an object of an extension API server. A nil object was deleted.
func (g *graph) update(key string, o *object) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if o != nil {
		g.put(key, o)
	} else if n := g.keys[key]; n != nil {
		g.remove(n)
	}
}

// forget drops the objects whose keys begin with prefix, because nobody watches them any more. That
// does not mean that they are gone.
func (g *graph) forget(prefix string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for key, n := range g.keys {
		if strings.HasPrefix(key, prefix) {
			g.unlinkAll(n)
			g.tidy(n)
		}
	}
}

// The methods below need mu.

func (g *graph) node(uid types.UID) *node {
	n := g.nodes[uid]
	if n == nil {
		n = &node{uid: uid, dependents: map[*node]struct{}{}}
		g.nodes[uid] = n
	}
	return n
}

func (g *graph) put(key string, o *object) {
	if other := g.keys[key]; other != nil && other.uid != o.uid {
		g.remove(other) // the object was created again
	}
	if !o.concerns() && g.nodes[o.uid] == nil {
		return
	}
	n := g.node(o.uid)
	old := n.object
	if old != nil && o.revision != 0 && o.revision <= old.revision {
		return
	}
	n.object, n.key, n.gone, n.absent = o, key, nil, nil
	g.keys[key] = n
	g.link(n, old)
	if old == nil || old.waits() != o.waits() {
		for dependent := range n.dependents {
			g.soon(dependent)
		}
		if o.waits() {
			g.soon(n)
		}
	}
	if (old == nil || !sameOwners(old.owners, o.owners)) && !g.solidOwners(o) {
		g.soon(n)
	}
	g.tidy(n)
}

func sameOwners(a, b []metav1.OwnerReference) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].UID != b[i].UID || a[i].Name != b[i].Name || a[i].Kind != b[i].Kind ||
			a[i].APIVersion != b[i].APIVersion {
			return false
		}
	}
	return true
}

// remove notes that the object of a node is gone.
func (g *graph) remove(n *node) {
	last := n.object
	g.unlinkAll(n)
	n.gone, n.absent = last, nil
	for dependent := range n.dependents {
		g.soon(dependent)
	}
	g.tidy(n)
}

// link makes the node a dependent of its owners, and of no others.
func (g *graph) link(n *node, old *object) {
	owners := map[types.UID]bool{}
	for _, r := range n.object.owners {
		owners[r.UID] = true
		g.node(r.UID).dependents[n] = struct{}{}
	}
	if old == nil {
		return
	}
	for _, r := range old.owners {
		owner := g.nodes[r.UID]
		if owner == nil {
			continue // named twice, and removed already
		}
		if !owners[r.UID] {
			delete(owner.dependents, n)
		}
		g.released(owner)
		g.tidy(owner)
	}
}

func (g *graph) unlinkAll(n *node) {
	old := n.object
	delete(g.keys, n.key)
	n.object = nil
	for _, r := range old.owners {
		if owner := g.nodes[r.UID]; owner != nil {
			delete(owner.dependents, n)
			g.released(owner)
			g.tidy(owner)
		}
	}
}

// released has an owner processed if nothing keeps it any more.
func (g *graph) released(owner *node) {
	if owner.object != nil && owner.object.waits() && !owner.kept() {
		g.soon(owner)
	}
}

// kept reports whether a dependent keeps an object that waits for dependents.
func (n *node) kept() bool {
	orphans := n.object.orphans()
	for dependent := range n.dependents {
		o := dependent.object
		if dependent != n && o.mayBelongTo(n.object) && (orphans || o.blocks(n.uid)) {
			return true
		}
	}
	return false
}

// tidy drops a node that is of no use.
func (g *graph) tidy(n *node) {
	if len(n.dependents) > 0 || n.object != nil && n.object.concerns() {
		return
	}
	delete(g.nodes, n.uid)
	if n.object != nil {
		delete(g.keys, n.key)
	}
}

// standing says how an owner stands.
type standing int

const (
	unknown   standing = iota
	solid              // exists, and is not waiting
	waiting            // is deleted in the foreground
	orphaning          // is deleted, and lets go of its dependents
	dangling           // does not exist
	misplaced          // is namespaced, though the dependent is cluster-scoped
)

func (g *graph) standing(o *object, r *metav1.OwnerReference) standing {
	owner := g.nodes[r.UID]
	switch {
	case owner == nil:
		return unknown
	case owner.gone != nil && !o.misplaces(owner.gone):
		return dangling
	case owner.object == nil || !o.names(r, owner.object):
		if _, ok := owner.absent[o.coordinates(r)]; ok {
			return dangling
		}
		return unknown
	case owner.object.orphans():
		return orphaning
	case owner.object.foreground():
		return waiting
	}
	return solid
}

// solidOwners reports whether there is nothing to do about the object's owners.
func (g *graph) solidOwners(o *object) bool {
	for i := range o.owners {
		if g.standing(o, &o.owners[i]) != solid {
			return false
		}
	}
	return true
}

// The methods below take mu.

// view is what is known of a node at one time.
type view struct {
	object     *object
	key        string
	kept       bool       // see node.kept
	owners     []standing // of the object's references
	dependents bool       // whether there are any
	cycle      bool       // whether a dependent that is deleted in the foreground leads back
}

// look returns what is known of a node, or nil if it has no object.
func (g *graph) look(n *node) *view {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n.object == nil {
		return nil
	}
	v := &view{object: n.object, key: n.key, dependents: len(n.dependents) > 0}
	v.kept = n.object.waits() && n.kept()
	for i := range n.object.owners {
		v.owners = append(v.owners, g.standing(n.object, &n.object.owners[i]))
	}
	for dependent := range n.dependents {
		if dependent.object.foreground() && dependent.leadsTo(n, map[*node]struct{}{}) {
			v.cycle = true
			break
		}
	}
	return v
}

// leadsTo reports whether a node is among the dependents, or the dependents of these and so on.
func (n *node) leadsTo(to *node, seen map[*node]struct{}) bool {
	seen[n] = struct{}{}
	for dependent := range n.dependents {
		if dependent == to {
			return true
		}
		if _, ok := seen[dependent]; !ok && dependent.leadsTo(to, seen) {
			return true
		}
	}
	return false
}

// again returns how the owner of a reference stands now.
func (g *graph) again(o *object, r *metav1.OwnerReference) standing {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.standing(o, r)
}

// lacks notes that the owner of a reference is not where the reference says.
func (g *graph) lacks(o *object, r *metav1.OwnerReference) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.nodes[r.UID]
	if n == nil {
		return // the reference has gone
	}
	if n.absent == nil {
		n.absent = map[coordinates]struct{}{}
	}
	n.absent[o.coordinates(r)] = struct{}{}
}

// namespaceOf returns the namespace of the object with a UID, if it is known to exist.
func (g *graph) namespaceOf(uid types.UID) (string, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.nodes[uid]
	if n == nil || n.object == nil {
		return "", false
	}
	return n.object.namespace, true
}
