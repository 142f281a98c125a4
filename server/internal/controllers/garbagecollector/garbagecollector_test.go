package garbagecollector_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

const (
	background = metav1.DeletePropagationBackground
	foreground = metav1.DeletePropagationForeground
	orphan     = metav1.DeletePropagationOrphan
)

// Dependents are deleted after their owner, and their dependents after them. That holds for kinds
// with odd keys in etcd too.
func TestBackground(t *testing.T) {
	t.Parallel()
	c := start(t)
	node := c.create(nodes, "owner")
	first := c.create(services, "first", owned(node, true))
	second := c.create(configMaps, "second", owned(first, false))
	c.create(configMaps, "third", owned(second, true))
	c.create(roles, "role", owned(node, true))
	c.create(configMaps, "alone")
	c.delete(nodes, "owner", background)
	c.gone(services, "first")
	c.gone(configMaps, "second", "third")
	c.gone(roles, "role")
	c.exist(configMaps, "alone")
}

// A deletion in the foreground waits for the dependents that block it.
func TestForeground(t *testing.T) {
	t.Parallel()
	c := start(t)
	owner := c.create(configMaps, "owner")
	c.create(configMaps, "blocking", owned(owner, true), held)
	c.create(configMaps, "free", owned(owner, false), held)
	middle := c.create(configMaps, "middle", owned(owner, true))
	c.create(configMaps, "leaf", owned(middle, true), held)
	c.delete(configMaps, "owner", foreground)
	c.deleting(configMaps, "blocking", "free", "middle", "leaf", "owner")
	c.let(configMaps, "leaf")
	c.gone(configMaps, "leaf", "middle")
	c.exist(configMaps)
	if c.get(configMaps, "owner") == nil {
		t.Error("the owner did not wait")
	}
	c.let(configMaps, "blocking")
	c.gone(configMaps, "blocking", "owner")
	if c.get(configMaps, "free") == nil {
		t.Error("an object was deleted in spite of its finalizer")
	}
}

// A dependent that does not block the deletion any more, or has another owner now, lets its owner
// go.
func TestForegroundReleased(t *testing.T) {
	t.Parallel()
	c := start(t)
	owner := c.create(configMaps, "owner")
	c.create(configMaps, "first", owned(owner, true), held)
	c.create(configMaps, "second", owned(owner, true), held)
	c.delete(configMaps, "owner", foreground)
	c.deleting(configMaps, "first", "second", "owner")
	for name, patch := range map[string]string{
		"first": `[{"op":"remove","path":"/metadata/ownerReferences"}]`,
		"second": `[{"op":"replace","path":"/metadata/ownerReferences/0/blockOwnerDeletion",
			"value":false}]`,
	} {
		if c.get(configMaps, "owner") == nil {
			t.Error("the owner did not wait")
		}
		_, err := c.objects(configMaps).Patch(t.Context(), name, types.JSONPatchType, []byte(patch),
			metav1.PatchOptions{})
		ok(t, err)
	}
	c.gone(configMaps, "owner")
}

// Orphans lose the reference to the owner that goes, and stay.
func TestOrphan(t *testing.T) {
	t.Parallel()
	c := start(t)
	owner, other := c.create(configMaps, "owner"), c.create(configMaps, "other")
	c.create(configMaps, "one", owned(owner, true))
	c.create(configMaps, "two", owned(owner, false), owned(other, true))
	c.create(configMaps, "going", owned(owner, false), held)
	c.delete(configMaps, "going", background)
	c.delete(configMaps, "owner", orphan)
	c.gone(configMaps, "owner")
	c.exist(configMaps, "one", "two", "other")
	c.ownedBy(configMaps, "one")
	c.ownedBy(configMaps, "two", "other")
	c.ownedBy(configMaps, "going")
	c.create(configMaps, "childless")
	c.delete(configMaps, "childless", orphan)
	c.gone(configMaps, "childless")
}

// An object that is deleted in the foreground, and stays because of a finalizer, is let go by an
// owner that orphans it.
func TestOrphanThatIsDeleted(t *testing.T) {
	t.Parallel()
	c := start(t)
	owner := c.create(configMaps, "owner")
	middle := c.create(configMaps, "middle", owned(owner, true), held)
	c.create(configMaps, "leaf", owned(middle, true), held)
	c.delete(configMaps, "middle", foreground)
	c.deleting(configMaps, "middle", "leaf")
	c.delete(configMaps, "owner", orphan)
	c.gone(configMaps, "owner")
	c.ownedBy(configMaps, "middle")
	c.let(configMaps, "leaf")
	c.gone(configMaps, "leaf")
	c.eventually("the finalizer of the foreground is gone", func() bool {
		return slices.Equal(c.get(configMaps, "middle").GetFinalizers(), []string{"example.com/held"})
	})
	c.let(configMaps, "middle")
	c.gone(configMaps, "middle")
}

// An object stays as long as one of its owners does, but loses the references to those that are
// gone or wait for it.
func TestSeveralOwners(t *testing.T) {
	t.Parallel()
	c := start(t)
	first, second := c.create(configMaps, "first"), c.create(configMaps, "second")
	third, fourth := c.create(configMaps, "third"), c.create(configMaps, "fourth")
	c.create(configMaps, "dependent", owned(first, true), owned(second, true), owned(third, true),
		owned(fourth, true))
	c.delete(configMaps, "first", background)
	c.ownedBy(configMaps, "dependent", "second", "third", "fourth")
	c.delete(configMaps, "second", foreground)
	c.gone(configMaps, "second")
	c.ownedBy(configMaps, "dependent", "third", "fourth")
	c.exist(configMaps, "dependent")
	c.delete(configMaps, "third", orphan)
	c.ownedBy(configMaps, "dependent", "fourth")
	c.delete(configMaps, "fourth", background)
	c.gone(configMaps, "dependent")
}

// What names an owner that never was is deleted. That includes one with another UID.
func TestAbsentOwner(t *testing.T) {
	t.Parallel()
	c := start(t)
	gone := c.create(configMaps, "gone")
	c.delete(configMaps, "gone", background)
	c.create(configMaps, "late", owned(gone, true))
	c.gone(configMaps, "late")

	live := c.create(configMaps, "live")
	wrong := live.DeepCopy()
	wrong.SetUID("another")
	c.create(configMaps, "wrong", owned(wrong, true))
	c.create(configMaps, "both", owned(wrong, true), owned(live, true))
	c.gone(configMaps, "wrong")
	c.ownedBy(configMaps, "both", "live")

	// The owner is created again. Its dependents belonged to the former object.
	c.create(configMaps, "of-former", owned(live, true))
	c.delete(configMaps, "live", background)
	again := c.create(configMaps, "live")
	c.create(configMaps, "of-new", owned(again, true))
	c.gone(configMaps, "of-former", "both")
	c.exist(configMaps, "of-new", "live")

	// A reference in another version or with another name is to no object.
	named := again.DeepCopy()
	named.SetName("other-name")
	c.create(configMaps, "other-named", owned(named, true))
	c.gone(configMaps, "other-named")
	c.exist(configMaps, "of-new")
}

// Namespaced owners own only objects of their namespace. For references from elsewhere, there is an
// event. A cluster-scoped object is not deleted because of them.
func TestNamespaces(t *testing.T) {
	t.Parallel()
	c := start(t)
	other := c.in("other")
	owner := c.create(configMaps, "owner")
	own := c.create(configMaps, "own", owned(owner, true))
	foreign := other.create(configMaps, "foreign", owned(owner, true))
	other.gone(configMaps, "foreign")
	role := c.create(roles, "role", owned(owner, true))
	dangling := c.create(roles, "dangling", owned(owner, true), func(o *unstructured.Unstructured) {
		refs := o.GetOwnerReferences()
		refs[0].UID = "another"
		o.SetOwnerReferences(refs)
	})
	for _, o := range []*unstructured.Unstructured{foreign, role} {
		c.eventually("there is an event about "+o.GetName(), func() bool {
			return c.warned(o, owner)
		})
	}
	c.exist(configMaps, "owner", own.GetName())
	c.delete(configMaps, "owner", foreground) // which the role does not block
	c.gone(configMaps, "owner", "own")
	c.exist(roles, "role", "dangling")
	if c.warned(dangling, owner) {
		t.Error("there is an event about an owner that is nowhere")
	}
}

// warned reports whether there is an event about a reference.
func (c *cluster) warned(o, owner *unstructured.Unstructured) bool {
	c.Helper()
	namespace := o.GetNamespace()
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	list, err := c.client.Resource(corev1.SchemeGroupVersion.WithResource("events")).
		Namespace(namespace).List(c.Context(), metav1.ListOptions{})
	ok(c, err)
	for _, u := range list.Items {
		var e corev1.Event
		ok(c, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &e))
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
func TestCycle(t *testing.T) {
	t.Parallel()
	c := start(t)
	for name, policy := range map[string]metav1.DeletionPropagation{
		"back": background, "fore": foreground,
	} {
		for _, length := range []int{1, 2, 3, 4} {
			prefix := name + string(rune('0'+length))
			names := []string{prefix + "-0"}
			first := c.create(configMaps, names[0])
			last := first
			for i := 1; i < length; i++ {
				names = append(names, prefix+"-"+string(rune('0'+i)))
				last = c.create(configMaps, names[i], owned(last, true))
			}
			first.SetOwnerReferences(nil)
			owned(last, true)(first)
			_, err := c.objects(configMaps).Update(t.Context(), first, metav1.UpdateOptions{})
			ok(t, err)
			c.delete(configMaps, names[0], policy)
			c.gone(configMaps, names...)
		}
	}
	// Both are deleted at once.
	one := c.create(configMaps, "one")
	two := c.create(configMaps, "two", owned(one, true))
	owned(two, true)(one)
	_, err := c.objects(configMaps).Update(t.Context(), one, metav1.UpdateOptions{})
	ok(t, err)
	c.delete(configMaps, "one", foreground)
	policy := foreground
	_ = c.objects(configMaps).Delete(t.Context(), "two",
		metav1.DeleteOptions{PropagationPolicy: &policy}) // may be gone
	c.gone(configMaps, "one", "two")
}
