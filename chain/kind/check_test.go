package kind_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/kinproc/kinproc/chain/kind"
)

// node has a spec and a status, configMap has neither.
type (
	node      = kind.Kind[*corev1.Node]
	configMap = kind.Kind[*corev1.ConfigMap]
)

func groupOf(kinds ...kind.Declaration) kind.Group {
	return kind.Group{
		Versions: []kind.GroupVersion{{Version: "v1", AddToScheme: corev1.AddToScheme}},
		Kinds:    kinds,
	}
}

func TestRefusedDeclarations(t *testing.T) {
	t.Parallel()
	prepare := func(context.Context, *corev1.Node, *corev1.Node) {}
	makeStorage := func(*genericregistry.Store) rest.Storage { return nil }
	row := func(*corev1.Node) []any { return nil }
	subresources := func(list ...kind.Subresource[*corev1.Node]) *node {
		return &node{Plural: "nodes", Subresources: list}
	}
	toNode := func(*corev1.Pod, *corev1.Node) error { return nil }
	fromNode := func(*corev1.Node, *corev1.Pod) error { return nil }
	for name, c := range map[string]struct {
		declaration kind.Declaration
		want        []string
	}{
		"no plural":           {&node{}, []string{"Plural: Required"}},
		"plural with a slash": {&node{Plural: "nodes/status"}, []string{"Plural: Invalid"}},

		"no version": {
			&node{Plural: "nodes", Versions: []kind.Version{{}}},
			[]string{"Versions[0]: Required"},
		},
		"version of another kind": {
			&node{
				Plural:   "nodes",
				Versions: []kind.Version{kind.ServedAsSame[*corev1.Pod, *corev1.ConfigMap]()},
			},
			[]string{"Versions[0]: Invalid"},
		},
		"version twice": {
			&node{Plural: "nodes", Versions: []kind.Version{
				kind.ServedAs(toNode, fromNode, nil), kind.ServedAs(toNode, fromNode, nil),
			}},
			[]string{"Versions[1]: Duplicate"},
		},
		"version that converts one way": {
			&node{Plural: "nodes", Versions: []kind.Version{kind.ServedAs(toNode, nil, nil)}},
			[]string{"Versions[0]: Required"},
		},
		"version with unknown field": {
			&node{Plural: "nodes", Versions: []kind.Version{
				kind.ServedAs(toNode, fromNode, nil).WithFields(map[string]string{"a": "b"}),
			}},
			[]string{"Versions[0].WithFields: Invalid"},
		},

		"columns without rows": {&node{
			Plural: "nodes",
			Table:  kind.Table[*corev1.Node]{Columns: []kind.Column{kind.NameColumn()}},
		}, []string{"Table.Row: Required"}},
		"rows without columns": {
			&node{Plural: "nodes", Table: kind.Table[*corev1.Node]{Row: row}},
			[]string{"Table.Columns: Required"},
		},
		"conditions of no row": {
			&node{
				Plural: "nodes",
				Table: kind.Table[*corev1.Node]{Conditions: func(*corev1.Node) []metav1.TableRowCondition {
					return nil
				}},
			},
			[]string{"Table.Row: Required"},
		},
		"annotations hidden in no row": {
			&node{Plural: "nodes", Quirks: kind.Quirks{HiddenAnnotations: []string{"a"}}},
			[]string{"Table.Row: Required"},
		},

		"status of a type without": {
			&configMap{Plural: "configmaps", Status: &kind.Status[*corev1.ConfigMap]{}},
			[]string{"Status: Forbidden"},
		},
		"quirks of no status": {
			&node{Plural: "nodes", Quirks: kind.Quirks{
				StatusOnCreate:      true,
				StatusWithSpec:      func() bool { return false },
				StatusNameOnUpdate:  true,
				StatusAnyFinalizers: true,
				NoStatusTable:       true,
			}},
			[]string{
				"Quirks.NoStatusTable: Forbidden", "Quirks.StatusAnyFinalizers: Forbidden",
				"Quirks.StatusNameOnUpdate: Forbidden", "Quirks.StatusOnCreate: Forbidden",
				"Quirks.StatusWithSpec: Forbidden",
			},
		},
		"incomplete scale": {
			&node{
				Plural: "nodes",
				Scale:  &kind.Scale[*corev1.Node]{Replicas: func(*corev1.Node) int32 { return 0 }},
			},
			[]string{
				"Scale.Selector: Required", "Scale.SetReplicas: Required", "Scale.StatusReplicas: Required",
			},
		},

		"subresource without a name": {
			subresources(kind.Subresource[*corev1.Node]{New: makeStorage}),
			[]string{"Subresources[0].Name: Required"},
		},
		"subresource twice": {
			subresources(kind.Subresource[*corev1.Node]{Name: "a", New: makeStorage},
				kind.Subresource[*corev1.Node]{Name: "a", New: makeStorage}),
			[]string{"Subresources[1].Name: Duplicate"},
		},
		"subresource without rules": {subresources(kind.Subresource[*corev1.Node]{Name: "a"}), []string{
			"Subresources[0].Prepare: Required",
		}},
		"subresource with idle rules": {subresources(kind.Subresource[*corev1.Node]{
			Name:        "a",
			New:         makeStorage,
			Prepare:     prepare,
			UpdateOnly:  true,
			ResetFields: []string{"spec"},
		}), []string{
			"Subresources[0].Prepare: Forbidden", "Subresources[0].ResetFields: Forbidden",
			"Subresources[0].UpdateOnly: Forbidden",
		}},
		"second status": {
			&node{
				Plural:       "nodes",
				Status:       &kind.Status[*corev1.Node]{},
				Subresources: []kind.Subresource[*corev1.Node]{{Name: "status", New: makeStorage}},
			},
			[]string{"Subresources[0].Name: Duplicate"},
		},

		"reset fields that do not exist": {
			&node{
				Plural:      "nodes",
				ResetFields: []string{"Status", "spec..a", "metadata.labels"},
				Status:      &kind.Status[*corev1.Node]{ResetFields: []string{"specs"}},
			},
			[]string{"ResetFields[0]: Invalid", "ResetFields[1]: Invalid", "Status.ResetFields[0]: Invalid"},
		},
		"generation of no spec": {
			&configMap{Plural: "configmaps", Generation: true},
			[]string{"Generation: Forbidden"},
		},
		"field without a value": {
			&node{Plural: "nodes", Fields: map[string]func(*corev1.Node) string{"a": nil}},
			[]string{"Fields[a]: Required"},
		},
		"field that is the name": {&node{
			Plural: "nodes",
			Fields: map[string]func(*corev1.Node) string{"metadata.name": (*corev1.Node).GetName},
		}, []string{"Fields[metadata.name]: Forbidden"}},
		"index of no field": {
			&node{Plural: "nodes", IndexedField: "spec.a"},
			[]string{"IndexedField: Invalid"},
		},
		"idle exception": {
			&node{Plural: "nodes", Quirks: kind.Quirks{UnconditionalVersions: []string{"v1"}}},
			[]string{"Quirks.UnconditionalVersions: Forbidden"},
		},
		"exception of no version": {&node{
			Plural:                 "nodes",
			RequireResourceVersion: true,
			Quirks:                 kind.Quirks{UnconditionalVersions: []string{"v1beta1"}},
		}, []string{"Quirks.UnconditionalVersions[0]: Unsupported"}},

		"several": {
			&node{Generation: true, IndexedField: "a"},
			[]string{"IndexedField: Invalid", "Plural: Required"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := kind.NewScheme(groupOf(c.declaration))
			if err == nil {
				t.Fatal("the declaration was accepted")
			}
			name := "Node"
			if _, ok := c.declaration.(*configMap); ok {
				name = "ConfigMap"
			}
			problems, ok := strings.CutPrefix(err.Error(), `group "": kind `+name+": ")
			if !ok {
				t.Errorf("the error does not begin with the group and the kind: %s", err)
			}
			got := strings.Split(strings.Trim(problems, "[]"), ", ")
			slices.Sort(got)
			if len(got) < len(c.want) {
				t.Fatalf("got %q, want %q", got, c.want)
			}
			for _, want := range c.want {
				if !slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, want) }) {
					t.Errorf("got %q, want %q", got, want)
				}
			}
		})
	}
}

func TestRefusedGroups(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		group kind.Group
		want  string
	}{
		"no kind": {groupOf(nil), `group "": Kinds[0] is nil`},
		"plural twice": {
			groupOf(&node{Plural: "nodes"}, &configMap{Plural: "nodes"}),
			`group "": kind ConfigMap: Plural: Duplicate value: "nodes"`,
		},
		"not a pointer": {
			groupOf(&kind.Kind[kind.Object]{Plural: "objects"}),
			`group "": kind kind.Object: T: Invalid value: "kind.Object": must be a pointer to a struct`,
		},
		"not an act": {
			groupOf(&kind.Virtual{Plural: "acts"}), `group "": kind acts: New: Required value`,
		},
		"type of another group": {
			groupOf(&kind.Kind[*rbacv1.Role]{Plural: "roles"}),
			`register group "": no version's AddToScheme registers *v1.Role`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := kind.NewScheme(c.group); err == nil || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}
