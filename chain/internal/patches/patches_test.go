package patches

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	kjson "sigs.k8s.io/json"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, patch string
		into        any
		want        string // the first field that is refused, if any
	}{
		{
			"type of an address", `{"status":{"addresses":[{"type":{},"address":"x"}]}}`, &corev1.Node{},
			"status.addresses[0].type",
		},
		{
			"name of a container", `{"spec":{"containers":[{"name":"a"},{"name":["a"]}]}}`, &corev1.Pod{},
			"spec.containers[1].name",
		},
		{
			"port of a container",
			`{"spec":{"template":{"spec":{"containers":[{"name":"a","ports":[{"containerPort":{}}]}]}}}}`,
			&appsv1.Deployment{}, "spec.template.spec.containers[0].ports[0].containerPort",
		},
		{"no container", `{"spec":{"containers":[null]}}`, &corev1.Pod{}, "spec.containers[0]"},
		{"list of containers", `{"spec":{"containers":[[]]}}`, &corev1.Pod{}, "spec.containers[0]"},
		{
			"uid of an owner", `{"metadata":{"ownerReferences":[{"uid":{}}]}}`, &corev1.ConfigMap{},
			"metadata.ownerReferences[0].uid",
		},
		{
			"finalizer", `{"metadata":{"finalizers":["a.example/b",null]}}`, &corev1.ConfigMap{},
			"metadata.finalizers[1]",
		},
		{
			"finalizer that is an object", `{"metadata":{"finalizers":[{}]}}`, &corev1.ConfigMap{},
			"metadata.finalizers[0]",
		},
		{
			"deleted finalizer", `{"metadata":{"$deleteFromPrimitiveList/finalizers":[{}]}}`,
			&corev1.ConfigMap{}, "metadata.$deleteFromPrimitiveList/finalizers[0]",
		},
		{
			"order of finalizers", `{"metadata":{"$setElementOrder/finalizers":[[]]}}`, &corev1.ConfigMap{},
			"metadata.$setElementOrder/finalizers[0]",
		},
		{
			"order of containers", `{"spec":{"$setElementOrder/containers":[{"name":{}}]}}`, &corev1.Pod{},
			"spec.$setElementOrder/containers[0].name",
		},
		{
			"retained keys", `{"spec":{"strategy":{"$retainKeys":[{}]}}}`, &appsv1.Deployment{},
			"spec.strategy.$retainKeys[0]",
		},

		{
			"shortened list that is replaced",
			`{"spec":{"$deleteFromPrimitiveList/externalIPs":["a"],"externalIPs":[null]}}`,
			&corev1.Service{}, "spec.externalIPs[0]",
		},
		{
			"shortened object", `{"$deleteFromPrimitiveList/metadata":{"$retainKeys":[[]]}}`, &corev1.Pod{},
			"$deleteFromPrimitiveList/metadata.$retainKeys[0]",
		},

		{"status", `{"status":{"addresses":[{"type":"Hostname","address":"x"}],
			"conditions":[{"type":"Ready","$patch":"delete"}]}}`, &corev1.Node{}, ""},
		{"order", `{"spec":{"$setElementOrder/containers":[{"name":"b"},{"name":"a"}],
			"containers":[{"name":"a","args":["x",null]}]}}`, &corev1.Pod{}, ""},
		{
			"retained", `{"spec":{"strategy":{"$retainKeys":["type"],"type":"Recreate"}}}`,
			&appsv1.Deployment{}, "",
		},
		{"list that is replaced", `{"spec":{"tolerations":[{"key":{}},null]}}`, &corev1.Pod{}, ""},
		{"unknown fields", `{"a":[{"name":{}}],"spec":{"b":[null]}}`, &corev1.Pod{}, ""},
		{"other types", `{"metadata":[],"spec":{"containers":{"name":{}}}}`, &corev1.Pod{}, ""},
		{"nothing", `null`, &corev1.Pod{}, ""},
		{"no JSON", `{`, &corev1.Pod{}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got := ""
			errs := Check([]byte(test.patch), test.into)
			if len(errs) > 0 {
				got = errs[0].Field
			}
			if got != test.want {
				t.Errorf("got %v, want %q", errs, test.want)
			}
		})
	}
}

// FuzzCheck merges the patches that pass Check. The library must not panic on any of them.
func FuzzCheck(f *testing.F) {
	for _, patch := range []string{
		`{"status":{"addresses":[{"type":{},"address":"x"}]}}`,
		`{"metadata":{"finalizers":["a.example/b",null],"$setElementOrder/finalizers":["a.example/b"],"$deleteFromPrimitiveList/finalizers":["c"]}}`,
		`{"metadata":{"ownerReferences":[{"uid":"u","name":"o"},{"$patch":"replace"}],"$setElementOrder/ownerReferences":[{"uid":"u"}]}}`,
		`{"spec":{"containers":[{"name":"b"},{"name":"a","$patch":"delete"}],"$setElementOrder/containers":[{"name":"b"},{"name":"a"}],"volumes":[{"name":"v","$retainKeys":["name","emptyDir"],"emptyDir":{}}]}}`,
		`{"spec":{"template":{"spec":{"containers":[{"name":"a","env":[{"name":"X","value":"y"}],"ports":[{"containerPort":1}]}]}},"strategy":{"$retainKeys":["type"],"type":"Recreate"}}}`,
		`{"spec":{"ports":[{"port":80,"name":null}],"$setElementOrder/ports":[{"port":80}]},"$patch":"replace"}`,
	} {
		f.Add([]byte(patch))
	}
	f.Fuzz(func(t *testing.T, patch []byte) {
		if len(patch) > 1<<12 {
			return
		}
		for original, into := range originals {
			merge(t, original, patch, into)
		}
	})
}

// FuzzCheckOfMixedUp is like FuzzCheck. Its patches are objects that are changed at random.
func FuzzCheckOfMixedUp(f *testing.F) {
	for seed := range uint64(200) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		for original, into := range originals {
			random := rand.New(rand.NewPCG(seed, 0))
			patch, err := json.Marshal(mixedUp(random, decode(t, original)))
			if err != nil {
				t.Fatal(err)
			}
			merge(t, original, patch, into)
		}
	})
}

// merge merges a patch if it passes Check.
func merge(t *testing.T, original string, patch []byte, into runtime.Object) {
	t.Helper()
	var fields map[string]any
	if len(Check(patch, into)) > 0 || kjson.UnmarshalCaseSensitivePreserveInts(patch, &fields) != nil {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			t.Fatalf("%T: merge %s: %v", into, patch, p)
		}
	}()
	_, _ = strategicpatch.StrategicMergeMapPatch(decode(t, original), fields, into)
}

func decode(t *testing.T, object string) map[string]any {
	t.Helper()
	var fields map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(object), &fields); err != nil {
		t.Fatal(err)
	}
	return fields
}

func mixedUp(random *rand.Rand, value any) any {
	if random.IntN(12) == 0 {
		return []any{
			nil, "a", int64(1), true, 1.5, map[string]any{}, []any{}, []any{nil}, []any{map[string]any{}},
			map[string]any{"name": "a", "type": nil},
		}[random.IntN(10)]
	}
	switch value := value.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(value)) {
			switch random.IntN(8) {
			case 0:
				value[[]string{"$setElementOrder/", "$deleteFromPrimitiveList/"}[random.IntN(2)]+name] =
					mixedUp(random, runtime.DeepCopyJSONValue(value[name]))
			case 1:
				delete(value, name)
			case 2:
				value["$retainKeys"] = mixedUp(random, []any{name, "name"})
			}
			if inner, ok := value[name]; ok {
				value[name] = mixedUp(random, inner)
			}
		}
		if random.IntN(20) == 0 {
			value["$patch"] = []any{"replace", "delete", "merge", nil, map[string]any{}}[random.IntN(5)]
		}
	case []any:
		for i := range value {
			value[i] = mixedUp(random, value[i])
		}
		random.Shuffle(len(value), func(i, j int) { value[i], value[j] = value[j], value[i] })
	}
	return value
}

// originals maps objects in JSON to their types.
var originals = map[string]runtime.Object{
	`{` + meta + `,"status":{"addresses":[{"type":"Hostname","address":"x"},
		{"type":"InternalIP","address":"y"}],"conditions":[{"type":"Ready"}]},
		"spec":{"podCIDRs":["a","b"]}}`: &corev1.Node{},

	`{` + meta + `,"spec":` + pod +
		`}`: &corev1.Pod{},
	`{` + meta +
		`,"spec":{"ports":[{"port":80},{"port":81}],"externalIPs":["a"]}}`: &corev1.Service{},
	`{` + meta + `,"spec":{"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":1}},
		"template":{"spec":` + pod + `}}}`: &appsv1.Deployment{},
}

const (
	meta = `"metadata":{"name":"a","finalizers":["a.example/b","c"],
		"ownerReferences":[{"uid":"u","name":"o"},{"uid":"v"}]}`
	pod = `{"containers":[
		{"name":"a","env":[{"name":"X"}],"ports":[{"containerPort":1},{"containerPort":2}]},
		{"name":"b"}],"volumes":[{"name":"v","hostPath":{"path":"/"}}],"imagePullSecrets":[{"name":"s"}]}`
)
