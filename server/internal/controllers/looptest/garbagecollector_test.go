package looptest

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
)

// Dependents are deleted after their owner, and their dependents after them. That holds for kinds
// with odd keys in etcd too.
func TestGarbageCollectorBackground(t *testing.T) {
	t.Parallel()
	c := startGarbageCollector(t)
	node := c.create(c.nodes, "owner")
	first := c.create(c.services, "first", c.owned(node, true))
	second := c.create(c.configMaps, "second", c.owned(first, false))
	c.create(c.configMaps, "third", c.owned(second, true))
	c.create(c.roles, "role", c.owned(node, true))
	c.create(c.configMaps, "alone")
	c.delete(c.nodes, "owner", background)
	c.gone(c.services, "first")
	c.gone(c.configMaps, "second", "third")
	c.gone(c.roles, "role")
	c.exist(c.configMaps, "alone")
}

// A deletion in the foreground waits for the dependents that block it.
func TestGarbageCollectorForeground(t *testing.T) {
	t.Parallel()
	c := garbageCollectorShared(t)
	owner := c.create(c.configMaps, "owner")
	c.create(c.configMaps, "blocking", c.owned(owner, true), c.held)
	c.create(c.configMaps, "free", c.owned(owner, false), c.held)
	middle := c.create(c.configMaps, "middle", c.owned(owner, true))
	c.create(c.configMaps, "leaf", c.owned(middle, true), c.held)
	c.delete(c.configMaps, "owner", foreground)
	c.deleting(c.configMaps, "blocking", "free", "middle", "leaf", "owner")
	c.let(c.configMaps, "leaf")
	c.gone(c.configMaps, "leaf", "middle")
	c.exist(c.configMaps)
	if c.get(c.configMaps, "owner") == nil {
		t.Error("the owner did not wait")
	}
	c.let(c.configMaps, "blocking")
	c.gone(c.configMaps, "blocking", "owner")
	if c.get(c.configMaps, "free") == nil {
		t.Error("an object was deleted in spite of its finalizer")
	}
}

// A dependent that does not block the deletion any more, or has another owner now, lets its owner
// go.
func TestGarbageCollectorForegroundReleased(t *testing.T) {
	t.Parallel()
	c := garbageCollectorShared(t)
	owner := c.create(c.configMaps, "owner")
	c.create(c.configMaps, "first", c.owned(owner, true), c.held)
	c.create(c.configMaps, "second", c.owned(owner, true), c.held)
	c.delete(c.configMaps, "owner", foreground)
	c.deleting(c.configMaps, "first", "second", "owner")
	for name, patch := range map[string]string{
		"first": `[{"op":"remove","path":"/metadata/ownerReferences"}]`,
		"second": `[{"op":"replace","path":"/metadata/ownerReferences/0/blockOwnerDeletion",
			"value":false}]`,
	} {
		if c.get(c.configMaps, "owner") == nil {
			t.Error("the owner did not wait")
		}
		_, err := c.objects(c.configMaps).Patch(t.Context(), name, types.JSONPatchType, []byte(patch),
			metav1.PatchOptions{})
		workloadtest.OK(t, err)
	}
	c.gone(c.configMaps, "owner")
}

// Orphans lose the reference to the owner that goes, and stay.
func TestGarbageCollectorOrphan(t *testing.T) {
	t.Parallel()
	c := garbageCollectorShared(t)
	owner, other := c.create(c.configMaps, "owner"), c.create(c.configMaps, "other")
	c.create(c.configMaps, "one", c.owned(owner, true))
	c.create(c.configMaps, "two", c.owned(owner, false), c.owned(other, true))
	c.create(c.configMaps, "going", c.owned(owner, false), c.held)
	c.delete(c.configMaps, "going", background)
	c.delete(c.configMaps, "owner", orphan)
	c.gone(c.configMaps, "owner")
	c.exist(c.configMaps, "one", "two", "other")
	c.ownedBy(c.configMaps, "one")
	c.ownedBy(c.configMaps, "two", "other")
	c.ownedBy(c.configMaps, "going")
	c.create(c.configMaps, "childless")
	c.delete(c.configMaps, "childless", orphan)
	c.gone(c.configMaps, "childless")
}

// An object that is deleted in the foreground, and stays because of a finalizer, is let go by an
// owner that orphans it.
func TestGarbageCollectorOrphanThatIsDeleted(t *testing.T) {
	t.Parallel()
	c := garbageCollectorShared(t)
	owner := c.create(c.configMaps, "owner")
	middle := c.create(c.configMaps, "middle", c.owned(owner, true), c.held)
	c.create(c.configMaps, "leaf", c.owned(middle, true), c.held)
	c.delete(c.configMaps, "middle", foreground)
	c.deleting(c.configMaps, "middle", "leaf")
	c.delete(c.configMaps, "owner", orphan)
	c.gone(c.configMaps, "owner")
	c.ownedBy(c.configMaps, "middle")
	c.let(c.configMaps, "leaf")
	c.gone(c.configMaps, "leaf")
	c.eventually("the finalizer of the foreground is gone", func() bool {
		return slices.Equal(c.get(c.configMaps, "middle").GetFinalizers(), []string{"example.com/held"})
	})
	c.let(c.configMaps, "middle")
	c.gone(c.configMaps, "middle")
}

// An object stays as long as one of its owners does, but loses the references to those that are
// gone or wait for it.
func TestGarbageCollectorSeveralOwners(t *testing.T) {
	t.Parallel()
	c := garbageCollectorShared(t)
	first, second := c.create(c.configMaps, "first"), c.create(c.configMaps, "second")
	third, fourth := c.create(c.configMaps, "third"), c.create(c.configMaps, "fourth")
	c.create(c.configMaps, "dependent", c.owned(first, true), c.owned(second, true),
		c.owned(third, true), c.owned(fourth, true))
	c.delete(c.configMaps, "first", background)
	c.ownedBy(c.configMaps, "dependent", "second", "third", "fourth")
	c.delete(c.configMaps, "second", foreground)
	c.gone(c.configMaps, "second")
	c.ownedBy(c.configMaps, "dependent", "third", "fourth")
	c.exist(c.configMaps, "dependent")
	c.delete(c.configMaps, "third", orphan)
	c.ownedBy(c.configMaps, "dependent", "fourth")
	c.delete(c.configMaps, "fourth", background)
	c.gone(c.configMaps, "dependent")
}

// An object whose owner never existed is deleted, also if only the UID of the owner differs.
func TestGarbageCollectorAbsentOwner(t *testing.T) {
	t.Parallel()
	c := garbageCollectorShared(t)
	gone := c.create(c.configMaps, "gone")
	c.delete(c.configMaps, "gone", background)
	c.create(c.configMaps, "late", c.owned(gone, true))
	c.gone(c.configMaps, "late")

	live := c.create(c.configMaps, "live")
	wrong := live.DeepCopy()
	wrong.SetUID("another")
	c.create(c.configMaps, "wrong", c.owned(wrong, true))
	c.create(c.configMaps, "both", c.owned(wrong, true), c.owned(live, true))
	c.gone(c.configMaps, "wrong")
	c.ownedBy(c.configMaps, "both", "live")

	// The owner is created again. Its dependents belonged to the former object.
	c.create(c.configMaps, "of-former", c.owned(live, true))
	c.delete(c.configMaps, "live", background)
	again := c.create(c.configMaps, "live")
	c.create(c.configMaps, "of-new", c.owned(again, true))
	c.gone(c.configMaps, "of-former", "both")
	c.exist(c.configMaps, "of-new", "live")

	// A reference in another version or with another name is to no object.
	named := again.DeepCopy()
	named.SetName("other-name")
	c.create(c.configMaps, "other-named", c.owned(named, true))
	c.gone(c.configMaps, "other-named")
	c.exist(c.configMaps, "of-new")
}

// Namespaced owners own only objects of their namespace. For references from elsewhere, there is an
// event. A cluster-scoped object is not deleted because of them.
func TestGarbageCollectorNamespaces(t *testing.T) {
	t.Parallel()
	c := startGarbageCollector(t)
	other := c.in("other")
	owner := c.create(c.configMaps, "owner")
	own := c.create(c.configMaps, "own", c.owned(owner, true))
	foreign := other.create(c.configMaps, "foreign", c.owned(owner, true))
	other.gone(c.configMaps, "foreign")
	role := c.create(c.roles, "role", c.owned(owner, true))
	dangling := c.create(c.roles, "dangling", c.owned(owner, true),
		func(o *unstructured.Unstructured) {
			refs := o.GetOwnerReferences()
			refs[0].UID = "another"
			o.SetOwnerReferences(refs)
		})
	for _, o := range []*unstructured.Unstructured{foreign, role} {
		c.eventually("there is an event about "+o.GetName(), func() bool {
			return c.warned(o, owner)
		})
	}
	c.exist(c.configMaps, "owner", own.GetName())
	c.delete(c.configMaps, "owner", foreground) // which the role does not block
	c.gone(c.configMaps, "owner", "own")
	c.exist(c.roles, "role", "dangling")
	if c.warned(dangling, owner) {
		t.Error("there is an event about an owner that is nowhere")
	}
}

// warned reports whether there is an event about a reference.
func (c *garbage) warned(o, owner *unstructured.Unstructured) bool {
	c.Helper()
	namespace := o.GetNamespace()
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	list, err := c.client.Resource(corev1.SchemeGroupVersion.WithResource("events")).
		Namespace(namespace).List(c.Context(), metav1.ListOptions{})
	workloadtest.OK(c, err)
	for _, u := range list.Items {
		var e corev1.Event
		workloadtest.OK(c, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &e))
		if e.InvolvedObject.UID != o.GetUID() {
			continue
		}
		want := "ownerRef [v1/ConfigMap, namespace: " + o.GetNamespace() + ", name: owner, uid: " +
			string(owner.GetUID()) + `] does not exist in namespace "` + o.GetNamespace() + `"`
		if e.Type != corev1.EventTypeWarning || e.Reason != "OwnerRefInvalidNamespace" ||
			e.Source.Component != "garbage-collector-controller" || e.Message != want {
			c.Errorf("event %v, want message %s", e, want)
		}
		return true
	}
	return false
}

// Objects that own each other can be deleted in the foreground.
func TestGarbageCollectorCycle(t *testing.T) {
	t.Parallel()
	c := garbageCollectorShared(t)
	for name, policy := range map[string]metav1.DeletionPropagation{
		"back": background, "fore": foreground,
	} {
		for _, length := range []int{1, 2, 3, 4} {
			prefix := name + string(rune('0'+length))
			names := []string{prefix + "-0"}
			first := c.create(c.configMaps, names[0])
			last := first
			for i := 1; i < length; i++ {
				names = append(names, prefix+"-"+string(rune('0'+i)))
				last = c.create(c.configMaps, names[i], c.owned(last, true))
			}
			first.SetOwnerReferences(nil)
			c.owned(last, true)(first)
			_, err := c.objects(c.configMaps).Update(t.Context(), first, metav1.UpdateOptions{})
			workloadtest.OK(t, err)
			c.delete(c.configMaps, names[0], policy)
			c.gone(c.configMaps, names...)
		}
	}
	// Both are deleted at once.
	one := c.create(c.configMaps, "one")
	two := c.create(c.configMaps, "two", c.owned(one, true))
	c.owned(two, true)(one)
	_, err := c.objects(c.configMaps).Update(t.Context(), one, metav1.UpdateOptions{})
	workloadtest.OK(t, err)
	c.delete(c.configMaps, "one", foreground)
	policy := foreground
	_ = c.objects(c.configMaps).Delete(t.Context(), "two",
		metav1.DeleteOptions{PropagationPolicy: &policy}) // may be gone
	c.gone(c.configMaps, "one", "two")
}
