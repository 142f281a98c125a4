package garbagecollector

import (
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// graphTest is a graph that records the UIDs of the nodes to process.
type graphTest struct {
	*graph
	t     *testing.T
	queue []string
}

func newGraphTest(t *testing.T) *graphTest {
	g := &graphTest{t: t}
	g.graph = newGraph(func(n *node) { g.queue = append(g.queue, string(n.uid)) })
	return g
}

// put adds an object whose name is its UID, with the UIDs of its owners.
func (g *graphTest) putObject(name string, revision int64, owners ...string) {
	m := &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Thing"},
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "ns", UID: types.UID(name), ResourceVersion: fmt.Sprint(revision),
		},
	}
	for _, owner := range owners {
		m.OwnerReferences = append(m.OwnerReferences, metav1.OwnerReference{
			APIVersion: "v1", Kind: "Thing", Name: owner, UID: types.UID(owner),
		})
	}
	g.add(change{key: name, object: newObject(m), revision: revision})
}

// expect checks which nodes are to be processed, and which nodes there are.
func (g *graphTest) expect(queue []string, nodes ...string) {
	g.t.Helper()
	slices.Sort(g.queue)
	if got := slices.Compact(g.queue); !slices.Equal(got, queue) {
		g.t.Errorf("to be processed: %v, want %v", got, queue)
	}
	var all []string
	for uid := range g.nodes {
		all = append(all, string(uid))
	}
	slices.Sort(all)
	if !slices.Equal(all, nodes) {
		g.t.Errorf("nodes: %v, want %v", all, nodes)
	}
	for key, n := range g.keys {
		if n.object == nil || n.key != key || g.nodes[n.uid] != n {
			g.t.Errorf("key %s leads to %v", key, n)
		}
	}
	g.queue = nil
}

// An object without owners and dependents has no node.
func TestGraphKeepsWhatConcernsIt(t *testing.T) {
	t.Parallel()
	g := newGraphTest(t)
	g.restart()
	g.putObject("alone", 1)
	g.putObject("owner", 2)
	g.putObject("dependent", 3, "owner")
	g.done(3)
	g.expect([]string{"dependent"}, "dependent", "owner")
	dependent := g.nodes["dependent"].object
	if s := g.again(dependent, &dependent.owners[0]); s != unknown {
		t.Errorf("the owner was listed before its dependent: standing %v", s)
	}
	g.putObject("dependent", 4)
	g.done(4)
	g.expect(nil)
}

// After a list, what is not in it is gone, unless it was found since.
func TestGraphListsAgain(t *testing.T) {
	t.Parallel()
	g := newGraphTest(t)
	g.restart()
	g.putObject("dependent", 3, "owner", "other")
	g.done(3)
	look := func(name string, revision int64) bool {
		m := &metav1.PartialObjectMetadata{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Thing"},
			ObjectMeta: metav1.ObjectMeta{
				Name:            name,
				Namespace:       "ns",
				UID:             types.UID(name),
				ResourceVersion: "1",
			},
		}
		return g.observe(name, newObject(m), revision)
	}
	if look("owner", 2) {
		t.Error("an object was accepted that may have changed since")
	}
	if !look("owner", 3) {
		t.Error("an object was not accepted")
	}
	g.expect([]string{"dependent"}, "dependent", "other", "owner")
	g.restart()
	if look("other", 9) {
		t.Error("an object was accepted that the list may lack")
	}
	g.putObject("dependent", 3, "owner", "other")
	g.done(9)
	g.expect([]string{"dependent"}, "dependent", "other", "owner")
	dependent := g.nodes["dependent"].object
	if s := g.again(dependent, &dependent.owners[0]); s != dangling {
		t.Errorf("the owner is gone, but its standing is %v", s)
	}
	g.restart()
	g.done(10)
	g.expect(nil)
}
