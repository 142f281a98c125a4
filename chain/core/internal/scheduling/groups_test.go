package scheduling

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/kind"
	"github.com/kinproc/kinproc/chain/kind/kindtest"
)

// specOf decodes a spec, given as JSON with single quotes, into obj and applies defaults.
func specOf[T kind.Object](t *testing.T, k *kind.Kind[T], obj T, spec string) T {
	t.Helper()
	if err := json.Unmarshal([]byte(strings.ReplaceAll(`{'spec':`+spec+`}`, "'", `"`)),
		obj); err != nil {
		t.Fatalf("decode %s: %v", spec, err)
	}
	if k.Default != nil {
		k.Default(obj)
	}
	return obj
}

type groupCase struct {
	name, spec string
	old        string // empty to create
	want       []string
}

func check[T kind.Object](t *testing.T, k *kind.Kind[T], newObject func() T, cases []groupCase) {
	t.Helper()
	for _, c := range cases {
		var errs field.ErrorList
		obj := specOf(t, k, newObject(), c.spec)
		if c.old == "" {
			if k.PrepareCreate != nil {
				k.PrepareCreate(t.Context(), obj)
			}
			errs = k.Validate(t.Context(), obj)
		} else {
			old := specOf(t, k, newObject(), c.old)
			k.PrepareUpdate(t.Context(), obj, old)
			errs = k.ValidateUpdate(t.Context(), obj, old)
		}
		if got := kindtest.Causes(errs); !slices.Equal(got, c.want) {
			t.Errorf("%s:\n got %q\nwant %q", c.name, got, c.want)
		}
	}
}

func TestWorkloads(t *testing.T) {
	t.Parallel()
	pods := func(name string) string {
		return `{'name':'` + name + `','schedulingPolicy':{'basic':{}}}`
	}
	groups := func(name, children string) string {
		return `{'name':'` + name + `','schedulingPolicy':{'basic':{}},` + children + `}`
	}
	leaf := func(name string) string { return `'podGroupTemplates':[` + pods(name) + `]` }
	nest := func(child string) string { return `'compositePodGroupTemplates':[` + child + `]` }
	gang := func(n string) string {
		return `{'podGroupTemplates':[{'name':'a','schedulingPolicy':{'gang':{'minCount':` + n + `}}}]}`
	}
	check(t, Workloads(), func() *schedulingv1beta1.Workload {
		return &schedulingv1beta1.Workload{}
	}, []groupCase{
		{"valid", `{` + leaf("a") + `}`, "", nil},
		{"empty", `{}`, "", []string{"spec Invalid"}},
		{
			"both", `{` + leaf("a") + `,` + nest(groups("b", leaf("c"))) + `}`, "", []string{"spec Invalid"},
		},
		{"controller", `{` + leaf("a") + `,'controllerRef':{'apiGroup':'A','kind':'','name':'a/b'}}`, "",
			[]string{
				"spec.controllerRef.apiGroup Invalid", "spec.controllerRef.kind Required",
				"spec.controllerRef.name Invalid",
			}},
		{"no gang", gang("0"), "", []string{
			"spec.podGroupTemplates[0].schedulingPolicy.gang.minCount Required",
		}},
		{
			"two policies",
			`{'podGroupTemplates':[{'name':'a','schedulingPolicy':{'basic':{},'gang':{'minCount':1}}}]}`, "",
			[]string{"spec.podGroupTemplates[0].schedulingPolicy Invalid"},
		},
		{"same name", `{'podGroupTemplates':[` + pods("a") + `,` + pods("a") + `]}`, "", []string{
			"spec.podGroupTemplates[1] Duplicate",
		}},
		{
			"too many", `{'podGroupTemplates':[` + strings.Repeat(pods("a")+",", 8) + pods("b") + `]}`, "",
			[]string{"spec.podGroupTemplates TooMany"},
		},
		{"same name elsewhere", `{` + nest(groups("a", leaf("a"))) + `}`, "", []string{
			"spec.compositePodGroupTemplates[0].podGroupTemplates[0].name Duplicate",
		}},
		{
			"three levels and pods",
			`{` + nest(groups("a", nest(groups("b", nest(groups("c", leaf("d"))))))) + `}`, "", nil,
		},
		{
			"too deep",
			`{` + nest(groups("a", nest(groups("b", nest(groups("c", nest(groups("d", leaf("e"))))))))) +
				`}`, "", []string{"spec.compositePodGroupTemplates[0] Invalid"},
		},
		{"no children", `{` + nest(groups("a", `'priority':1`)) + `}`, "", []string{
			"spec.compositePodGroupTemplates[0] Invalid",
		}},
		{"two priorities", `{` + nest(groups("a", leaf("b")+`,'priority':1`)) + `}`, "", []string{
			"spec Invalid",
		}},
		{"features that are off", `{'podGroupTemplates':[{'name':'a','schedulingPolicy':{'basic':{}},
			'schedulingConstraints':{'topology':[{'key':''}]},
			'resourceClaims':[{'name':''}],'preemptionPolicy':'Ask'}]}`, "", nil},

		{"another number", gang("2"), gang("1"), nil},
		{"another policy", `{` + leaf("a") + `}`, gang("1"),
			[]string{
				"spec.podGroupTemplates[0].schedulingPolicy.basic Invalid",
				"spec.podGroupTemplates[0].schedulingPolicy.gang Invalid",
			}},
		{
			"one more", `{'podGroupTemplates':[` + pods("a") + `,` + pods("b") + `]}`, `{` + leaf("a") + `}`,
			[]string{"spec.podGroupTemplates[1] Forbidden"},
		},
		{
			"one less", `{` + leaf("a") + `}`, `{'podGroupTemplates':[` + pods("a") + `,` + pods("b") + `]}`,
			[]string{"spec.podGroupTemplates Forbidden"},
		},
		{
			"another controller", `{` + leaf("a") + `,'controllerRef':{'kind':'Job','name':'a'}}`,
			`{` + leaf("a") + `}`, []string{"spec.controllerRef Invalid"},
		},
	})
}

func TestPodGroups(t *testing.T) {
	t.Parallel()
	const basic = `'schedulingPolicy':{'basic':{}}`
	check(t, PodGroups(), func() *schedulingv1beta1.PodGroup {
		return &schedulingv1beta1.PodGroup{}
	}, []groupCase{
		{"valid", `{` + basic + `}`, "", nil},
		{"no policy", `{}`, "", []string{"spec.schedulingPolicy Invalid"}},
		{"reference", `{` + basic + `,'workloadRef':{'workloadName':'A'}}`, "", []string{
			"spec.workloadRef.templateName Required", "spec.workloadRef.workloadName Invalid",
		}},
		{"no mode", `{` + basic + `,'disruptionMode':{}}`, "", []string{"spec.disruptionMode Invalid"}},
		{"too high", `{` + basic + `,'priority':1000000001}`, "", []string{"spec.priority Invalid"}},
		{"another mode", `{` + basic + `,'disruptionMode':{'all':{}}}`, `{` + basic + `}`, []string{
			"spec.disruptionMode Invalid",
		}},
		{
			"another parent", `{` + basic + `,'parentCompositePodGroupName':'a'}`, `{` + basic + `}`,
			[]string{"spec.parentCompositePodGroupName Invalid"},
		},
	})
}

func TestCompositePodGroups(t *testing.T) {
	t.Parallel()
	const valid = `'schedulingPolicy':{'gang':{'minGroupCount':1}},
		'workloadRef':{'workloadName':'w','templateName':'t'}`
	check(t, CompositePodGroups(), func() *schedulingv1alpha3.CompositePodGroup {
		return &schedulingv1alpha3.CompositePodGroup{}
	}, []groupCase{
		{"valid", `{` + valid + `}`, "", nil},
		{"no workload", `{'schedulingPolicy':{'basic':{}}}`, "", []string{"spec.workloadRef Required"}},
		{
			"topologies", `{` + valid + `,'schedulingConstraints':{'topology':[{'key':'a'},{'key':'b'}]}}`,
			"", []string{"spec.schedulingConstraints.topology TooMany"},
		},
		{"another number", `{` + strings.Replace(valid, "1", "2", 1) + `}`, `{` + valid + `}`, []string{
			"spec.schedulingPolicy Invalid",
		}},
	})
}
