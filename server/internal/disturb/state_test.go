package disturb

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// stateOf returns a state of config maps, each with the name of its owner.
func stateOf(owners map[string]string) State {
	var list []*unstructured.Unstructured
	for name, owner := range owners {
		u := &unstructured.Unstructured{Object: map[string]any{}}
		u.SetName(name)
		u.SetUID(types.UID(name))
		if owner != "" {
			u.SetOwnerReferences([]metav1.OwnerReference{{Name: owner, UID: types.UID(owner)}})
		}
		list = append(list, u)
	}
	return newState(map[schema.GroupResource][]*unstructured.Unstructured{
		{Resource: "configmaps"}: list,
	})
}

// What lacks because its owner does is told with the owner.
func TestDifferencesOfOwnedObjects(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name          string
		before, after map[string]string
		mask          masked
		want          []string
	}{
		{name: "a chain",
			before: map[string]string{"z": "", "y": "z", "x": "y", "a": ""},
			want:   []string{"- configmaps a", "- configmaps z, and 2 objects that follow from it"},
		},
		{name: "the owner exists",
			before: map[string]string{"z": "", "y": "z"}, after: map[string]string{"z": "", "x": "z"},
			want: []string{"+ configmaps x", "- configmaps y"},
		},
		{name: "the owner's absence is chance",
			before: map[string]string{"z": "", "y": "z"}, mask: masked{{"configmaps z", ""}: true},
			want: []string{"- configmaps y"},
		},
		{name: "a circle",
			after: map[string]string{"a": "b", "b": "a"},
			want:  []string{"+ configmaps a", "+ configmaps b"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, d := range differences(stateOf(test.before), stateOf(test.after), test.mask) {
				got = append(got, strings.TrimSpace(d.lines()))
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// What lacks comes before what follows from it, and what only shows something comes last. Claims
// are told with their stateful set, volumes with their claims, and endpoints with their service.
func TestCausesComeFirst(t *testing.T) {
	t.Parallel()
	before := State{
		"pods default/pg-0":                        {".metadata.ownerReferences[pg].uid": uidOf + "statefulsets.apps default/pg"},
		"controllerrevisions.apps default/pg-*":    {".metadata.ownerReferences[pg].uid": uidOf + "statefulsets.apps default/pg"},
		"persistentvolumeclaims default/data-pg-0": {},
		"persistentvolumes pvc-*":                  {".spec.claimRef.uid": uidOf + "persistentvolumeclaims default/data-pg-0"},
		"statefulsets.apps default/pg":             {},
		"endpoints default/web":                    {},
		"endpointslices.discovery.k8s.io default/web-*": {
			".metadata.ownerReferences[web].uid": uidOf + "services default/web",
		},
		"services default/web":                 {},
		"pods default/a":                       {".status.phase": "Running"},
		"secrets default/z":                    {".data.x": "1"},
		"persistentvolumeclaims default/own-1": {},
	}
	after := State{
		"pods default/a":    {".status.phase": "Failed"},
		"secrets default/z": {".data.x": "2"},
	}
	p := Problem{Kind: StateDiffers, Objects: differences(before, after, nil)}
	const want = `The final state differs (- undisturbed, + disturbed):
  - persistentvolumeclaims default/own-1
    secrets default/z
  -   .data.x: 1
  +   .data.x: 2
  - services default/web, and 2 objects that follow from it
  - statefulsets.apps default/pg, and 4 objects that follow from it
    pods default/a
  -   .status.phase: Running
  +   .status.phase: Failed`
	if p.String() != want {
		t.Errorf("got %s\nwant %s", p, want)
	}
	if last := concerned([]Problem{p})[4]; last.String() != "pods default/a" {
		t.Errorf("the last object with a history is %s, want the pod", last)
	}
}

// Neither the order of addresses nor a resource version in a reference is a difference.
func TestStateHasNoChance(t *testing.T) {
	t.Parallel()
	endpoints := func(version string, pods ...string) State {
		var addresses []any
		for _, pod := range pods {
			addresses = append(addresses, map[string]any{
				"ip": "10.0.0.1", "targetRef": map[string]any{"name": pod, "resourceVersion": version},
			})
		}
		return newState(map[schema.GroupResource][]*unstructured.Unstructured{
			{Resource: "endpoints"}: {{Object: map[string]any{
				"metadata": map[string]any{"name": "web"},
				"subsets":  []any{map[string]any{"addresses": addresses}},
			}}},
		})
	}
	if d := differences(endpoints("1", "web-0", "web-1"), endpoints("2", "web-1", "web-0"), nil); d != nil {
		t.Errorf("differences %v, want none", d)
	}
}

// A field is chance if it has another value each time, and not if a second try has the usual one.
func TestLearn(t *testing.T) {
	t.Parallel()
	outcome := func(value string) *Outcome {
		return &Outcome{state: State{"configmaps a": {".data.x": value}}}
	}
	for second, want := range map[string]bool{"3": false, "1": true, "2": true} {
		b := &Baseline{state: outcome("1").state, mask: masked{}}
		first := outcome("2")
		b.Learn(first, outcome(second))
		if found := b.Judge(Disturbance{}, first) != nil; found != want {
			t.Errorf("1 undisturbed, then 2 and %s: a finding is %v, want %v", second, found, want)
		}
	}
}

// That an object was deleted more often in the first try only is told of one disturbance. If the
// second try repeats it, it is always told.
func TestLearnCounts(t *testing.T) {
	t.Parallel()
	const object = "configmaps a"
	outcome := func(deleted int) *Outcome {
		return &Outcome{counts: counts{object: {created: deleted, deleted: deleted}}}
	}
	once := outcome(1).counts
	b := &Baseline{
		fewest: once, most: once, made: map[string]bool{object: true}, unsteady: map[string]bool{},
	}
	for i, step := range []struct {
		second int
		want   bool
	}{{2, true}, {1, true}, {2, true}, {1, false}, {2, true}} {
		first := outcome(2)
		b.Learn(first, outcome(step.second))
		if found := b.Judge(Disturbance{}, first) != nil; found != step.want {
			t.Errorf("disturbance %d: a finding is %v, want %v", i+1, found, step.want)
		}
	}
}

// A program that writes a map of Go as the lines of a config map has another order each time.
func TestLinesInAnyOrder(t *testing.T) {
	t.Parallel()
	state := func(resource, text string) State {
		return State{resource + " a": {".data.x": text}}
	}
	for _, test := range []struct {
		resource, text string
		differs        bool
	}{
		{"configmaps", "b\na\n", false},
		{"configmaps", "a\nc\n", true},
		{"secrets", "b\na\n", true},
	} {
		d := differences(state(test.resource, "a\nb\n"), state(test.resource, test.text), nil)
		if differs := d != nil; differs != test.differs {
			t.Errorf("%s with %q: differs is %v, want %v", test.resource, test.text, differs, test.differs)
		}
	}
}
