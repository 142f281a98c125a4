package resource

import (
	"encoding/json"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/kinproc/kinproc/chain/features"
)

// TestFeatures has objects that use the fields of each feature, and what is left of them if the
// feature is off.
func TestFeatures(t *testing.T) {
	t.Parallel()
	slice := func(device string) string { return `{'devices':[{'name':'d'` + device + `}]}` }
	checkFeatures(t, sliceFeatures(), map[string][2]string{
		"DRADeviceTaints": {slice(`,'taints':[{'key':'k'}]`), slice(``)},
		"DRAPartitionableDevices": {
			`{'sharedCounters':[{'name':'c'}],'perDeviceNodeSelection':true,'devices':[{'name':'d',
				'consumesCounters':[{'counterSet':'c'}],'nodeName':'n','nodeSelector':{},
				'allNodes':true}]}`,
			slice(``),
		},
		"DRADeviceBindingConditions": {
			slice(`,'bindingConditions':['a'],'bindingFailureConditions':['b'],'bindsToNode':true`),
			slice(``),
		},
		"DRAConsumableCapacity": {
			slice(`,'allowMultipleAllocations':true,'capacity':{'m':{'value':'1','requestPolicy':{}}}`),
			slice(`,'capacity':{'m':{'value':'1'}}`),
		},
	})
	claim := func(request string) string {
		return `{'devices':{'requests':[{'name':'r','exactly':{` + request +
			`}},{'name':'s','firstAvailable':[{'name':'t'` + strings.TrimSuffix(","+request, ",") +
			`}]}]}}`
	}
	checkFeatures(t, claimFeatures(), map[string][2]string{
		"DRADeviceTaints": {claim(`'tolerations':[{'key':'k'}]`), claim(``)},
		"DRAConsumableCapacity": {
			claim(`'capacity':{'requests':{'m':'1'}}`), claim(``),
		},
	})
	status := func(result string) string {
		return `{'status':{'allocation':{'devices':{'results':[{'request':'r'` + result + `}]}}}}`
	}
	checkFeatures(t, statusFeatures(), map[string][2]string{
		"DRAConsumableCapacity": {status(`,'shareID':'1','consumedCapacity':{'m':'1'}`), status(``)},
		"DRADeviceBindingConditions": {
			status(`,'bindingConditions':['a'],'bindingFailureConditions':['b']`), status(``),
		},
	})
}

func checkFeatures[T any](t *testing.T, all []features.Fields[T], tests map[string][2]string) {
	t.Helper()
	for _, f := range all {
		test := tests[string(f.Gate)]
		using, left := part[T](t, test[0]), part[T](t, test[1])
		if !f.Take(using, false) || f.Take(left, false) {
			t.Errorf("%T, %s: the fields that use the feature are not those of the test", using, f.Gate)
		}
		if !equality.Semantic.DeepEqual(using, part[T](t, test[0])) {
			t.Errorf("%T, %s: asking changes fields", using, f.Gate)
		}
		f.Take(using, true)
		if !equality.Semantic.DeepEqual(using, left) {
			got, _ := json.Marshal(using)
			t.Errorf("%T, %s: left is %s, want %s", using, f.Gate, got, test[1])
		}
		if len(tests) != len(all) {
			t.Errorf("%T: there are %d features and %d tests", using, len(all), len(tests))
		}
	}
}

func part[T any](t *testing.T, document string) *T {
	t.Helper()
	p := new(T)
	if err := json.Unmarshal([]byte(strings.ReplaceAll(document, "'", `"`)), p); err != nil {
		t.Fatalf("decode %s: %v", document, err)
	}
	return p
}

// TestSharesOfRequestedCapacity has a claim whose spec uses a feature. Its status may use it then.
func TestSharesOfRequestedCapacity(t *testing.T) {
	t.Parallel()
	c := part[resourcev1.ResourceClaim](t, `{'spec':{'devices':{'constraints':[{'distinctAttribute':
		'a/b'}]}}}`)
	if !shares(c, false) {
		t.Error("the status may not have shares")
	}
}
