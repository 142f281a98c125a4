package resource

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/kind"
	"github.com/kinproc/kinproc/chain/kind/kindtest"
)

func decode[T kind.Object](t *testing.T, k *kind.Kind[T], obj T, documents ...string) T {
	t.Helper()
	for _, d := range documents {
		if err := json.Unmarshal([]byte(strings.ReplaceAll(d, "'", `"`)), obj); err != nil {
			t.Fatalf("decode %s: %v", d, err)
		}
	}
	if k.Default != nil {
		k.Default(obj)
	}
	return obj
}

const (
	validClaim = `{'metadata':{'name':'x'},
		'spec':{'devices':{'requests':[{'name':'r','exactly':{'deviceClassName':'c'}}]}}}`
	validSlice = `{'metadata':{'name':'x'},'spec':{'driver':'d.example.com',
		'pool':{'name':'p','resourceSliceCount':1},'nodeName':'n',
		'devices':[{'name':'a','attributes':{'model':{'string':'a'}}}]}}`
)

func TestResourceClaims(t *testing.T) {
	t.Parallel()
	k := ResourceClaims(func(_ context.Context, namespace string) (map[string]string, error) {
		return map[string]string{adminLabel: "false"}, nil
	}, nil)
	devices := func(d string) string { return `{'spec':{'devices':{` + d + `}}}` }
	const at = "spec.devices."
	for _, test := range []struct {
		patch string
		want  []string
	}{
		{`{}`, nil},
		{devices(`'requests':[{'name':''}]`), []string{at + "requests[0].name Invalid"}},
		{devices(`'requests':[{'name':'r'},{'name':'r','exactly':{'deviceClassName':'C'}}]`), []string{
			at + "requests[1] Duplicate", at + "requests[1].exactly.deviceClassName Invalid",
		}},
		{devices(`'requests':[{'exactly':null,'firstAvailable':[{'name':'a','deviceClassName':'c'},
			{'name':'a','deviceClassName':''}]}]`), []string{
			at + "requests[0].firstAvailable[1] Duplicate",
			at + "requests[0].firstAvailable[1].deviceClassName Required"}},
		{devices(`'requests':[{'firstAvailable':[{'name':'A'}]}]`), []string{
			at + "requests[0] Invalid", at + "requests[0].firstAvailable[0].deviceClassName Required",
		}},
		{devices(`'requests':[{'name':'r'},{'name':'s'}]`), []string{at + "requests[1] Required"}},
		{devices(`'requests':[{'exactly':{'adminAccess':true}}]`), []string{
			at + "requests[0].adminAccess Forbidden",
		}},
		{devices(`'requests':[{'exactly':{'allocationMode':'All','count':2}}]`), []string{
			at + "requests[0].exactly.count Invalid",
		}},
		{devices(`'requests':[{'exactly':{'allocationMode':'Some'}}]`), []string{
			at + "requests[0].exactly.allocationMode NotSupported",
		}},
		{devices(`'requests':[{'exactly':{'count':-1}}]`), []string{
			at + "requests[0].exactly.count Invalid",
		}},
		{
			devices(`'requests':[{'exactly':{'selectors':[{},{'cel':{'expression':'device.nothing'}}]}}]`),
			[]string{
				at + "requests[0].exactly.selectors[0].cel Required",
				at + "requests[0].exactly.selectors[1].cel.expression Invalid",
			},
		},
		{devices(`'requests':[{'exactly':{'tolerations':[{'operator':'Exists','value':'a','effect':'x'},
			{'key':'-','tolerationSeconds':1}]}}]`), []string{
			at + "requests[0].exactly.tolerations[0].effect NotSupported",
			at + "requests[0].exactly.tolerations[0].value Invalid",
			at + "requests[0].exactly.tolerations[1].key Invalid"}},
		{devices(`'constraints':[{'requests':['r','r'],'matchAttribute':'d.example.com/a',
			'distinctAttribute':'b'}]`), []string{
			at + "constraints[0].distinctAttribute Invalid", at + "constraints[0].requests[1] Duplicate"}},
		{devices(`'requests':[{'exactly':{'capacity':{'requests':{'-':'1'}}}}]`), nil},
		{devices(`'constraints':[{'requests':['q'],'matchAttribute':'a'},{}]`), []string{
			at + "constraints[0].matchAttribute Invalid", at + "constraints[0].requests[0] Invalid",
			at + "constraints[1] Required"}},
		{devices(`'config':[{},{'opaque':{'driver':'D/','parameters':[]}}]`), []string{
			at + "config[0].opaque Required", at + "config[1].opaque.driver Invalid",
			at + "config[1].opaque.parameters Invalid"}},
	} {
		c := decode(t, k, &resourcev1.ResourceClaim{}, validClaim, test.patch)
		if got := kindtest.Causes(k.Validate(t.Context(), c)); !slices.Equal(got, test.want) {
			t.Errorf("with %s:\n got %q\nwant %q", test.patch, got, test.want)
		}
	}
	old := decode(t, k, &resourcev1.ResourceClaim{}, validClaim)
	changed := decode(t, k, &resourcev1.ResourceClaim{}, validClaim,
		devices(`'requests':[{'exactly':{'deviceClassName':'other'}}]`))
	if got := kindtest.Causes(k.ValidateUpdate(t.Context(), changed, old)); !slices.Equal(got,
		[]string{"spec Invalid"}) {
		t.Errorf("a changed spec: got %q", got)
	}

	for _, test := range []struct {
		status string
		want   []string
	}{
		{`'allocation':{'devices':{'results':[{'request':'r','driver':'d','pool':'p','device':'a'}]}},
			'reservedFor':[{'resource':'pods','name':'a','uid':'1'}]`, nil},
		{`'reservedFor':[{'name':'a','uid':'1'}]`, []string{
			"status.reservedFor Forbidden", "status.reservedFor[0].resource Required",
		}},
		{
			`'allocation':{'devices':{'results':[{'request':'q','driver':'','pool':'A','device':'a'}]}}`,
			[]string{
				"status.allocation.devices.results[0].driver Required",
				"status.allocation.devices.results[0].pool Invalid",
				"status.allocation.devices.results[0].request Invalid",
			},
		},
		{`'devices':[{'driver':'d','pool':'p','device':'a'}]`, []string{"status.devices[0] Invalid"}},
		{`'allocation':{'devices':{'results':[{'request':'r','driver':'d','pool':'p','device':'a',
			'adminAccess':true,'bindingConditions':['a','a']}],'config':[{}]}}`, []string{
			"status.allocation.devices.config[0].opaque Required",
			"status.allocation.devices.config[0].source Required",
			"status.allocation.devices.results[0].adminAccess Forbidden",
			"status.allocation.devices.results[0].bindingConditions[1] Duplicate",
			"status.allocation.devices.results[0].bindingFailureConditions Invalid"}},
		{`'allocation':{'devices':{'results':[{'request':'r','driver':'d','pool':'p','device':'a'}]}},
			'devices':[{'driver':'d','pool':'p','device':'a',
			'data':'x','networkData':{'ips':['10.0.0.1','10.0.0.1/24','10.0.0.1/24']}}]`, []string{
			"status.devices[0].data Invalid", "status.devices[0].networkData.ips[0] Invalid",
			"status.devices[0].networkData.ips[2] Duplicate"}},
	} {
		c := decode(t, k, &resourcev1.ResourceClaim{}, validClaim, `{'status':{`+test.status+`}}`)
		if got := kindtest.Causes(k.Status.Validate(t.Context(), c, old)); !slices.Equal(got, test.want) {
			t.Errorf("status %s:\n got %q\nwant %q", test.status, got, test.want)
		}
	}
}

// TestDeallocation checks that the status that a driver reported for a device is dropped with the
// device's allocation.
func TestDeallocation(t *testing.T) {
	t.Parallel()
	k := ResourceClaims(nil, nil)
	const allocated = `{'status':{'allocation':{'devices':{'results':[
		{'request':'r','driver':'d','pool':'p','device':'a'}]}},
		'devices':[{'driver':'d','pool':'p','device':'a'}]}}`
	old := decode(t, k, &resourcev1.ResourceClaim{}, validClaim, allocated)
	c := decode(t, k, &resourcev1.ResourceClaim{}, validClaim, allocated,
		`{'status':{'allocation':null}}`)
	k.Status.Prepare(t.Context(), c, old)
	if c.Status.Devices != nil {
		t.Errorf("status.devices after the deallocation: %v", c.Status.Devices)
	}
	c = decode(t, k, &resourcev1.ResourceClaim{}, validClaim, allocated)
	k.Status.Prepare(t.Context(), c, old)
	if len(c.Status.Devices) != 1 {
		t.Errorf("status.devices of an allocated claim: %v", c.Status.Devices)
	}
}

func TestDefaultModes(t *testing.T) {
	t.Parallel()
	for _, v1beta1 := range []bool{false, true} {
		d := resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{
			{Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "c"}},
			{Exactly: &resourcev1.ExactDeviceRequest{}},
		}}
		defaultDevices(&d, v1beta1)
		if e := d.Requests[0].Exactly; e.AllocationMode != resourcev1.DeviceAllocationModeExactCount ||
			e.Count != 1 {
			t.Errorf("v1beta1 %t: %+v", v1beta1, e)
		}
		if e := d.Requests[1].Exactly; v1beta1 != (e.AllocationMode == "") {
			t.Errorf("v1beta1 %t, without a class: %+v", v1beta1, e)
		}
	}
}

// TestTemplateUpdate checks that an update is validated like a new template, although the spec is
// immutable.
func TestTemplateUpdate(t *testing.T) {
	t.Parallel()
	k := ResourceClaimTemplates(nil)
	const valid = `{'spec':{
		'spec':{'devices':{'requests':[{'name':'r','exactly':{'deviceClassName':'c'}}]}}}}`
	old := decode(t, k, &resourcev1.ResourceClaimTemplate{}, valid)
	c := decode(t, k, &resourcev1.ResourceClaimTemplate{}, valid,
		`{'spec':{'metadata':{'uid':'u'},'spec':{'devices':{'constraints':[{}]}}}}`)
	want := []string{
		"spec Invalid", "spec.metadata.uID Forbidden", "spec.spec.devices.constraints[0] Required",
	}
	if got := kindtest.Causes(k.ValidateUpdate(t.Context(), c, old)); !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

func TestResourceSlices(t *testing.T) {
	t.Parallel()
	k := ResourceSlices()
	spec := func(s string) string { return `{'spec':{` + s + `}}` }
	var many []string
	for i := range resourcev1.ResourceSliceMaxDevices + 1 {
		many = append(many, fmt.Sprintf(`{'name':'d%d','attributes':null}`, i))
	}
	for _, test := range []struct {
		patch string
		want  []string
	}{
		{`{}`, nil},
		{spec(`'driver':'A/b','pool':{'name':'p//q','generation':-1}`), []string{
			"spec.driver Invalid", "spec.pool.generation Invalid", "spec.pool.name Invalid",
		}},
		{spec(`'driver':''`), []string{"spec.driver Required"}},
		{spec(`'nodeName':null`), []string{"spec Required"}},
		{spec(`'nodeName':''`), []string{"spec Required", "spec.nodeName Invalid"}},
		{spec(`'allNodes':true`), []string{"spec Invalid"}},
		{spec(`'allNodes':false,'perDeviceNodeSelection':false`), []string{
			"spec.allNodes Invalid", "spec.perDeviceNodeSelection Invalid",
		}},
		{spec(`'nodeName':null,'perDeviceNodeSelection':true`), []string{"spec.devices[0] Required"}},
		{spec(`'devices':[{'nodeName':'n'}]`), []string{"spec.devices[0] Invalid"}},
		{spec(`'devices':[{},{'name':'a'}]`), []string{"spec.devices[1] Duplicate"}},
		{spec(`'devices':[{'attributes':{'a-b':{'bool':true},'v':{'version':'1'},'n':{}}}]`), []string{
			"spec.devices[0].attributes Invalid", "spec.devices[0].attributes[n] Invalid",
			"spec.devices[0].attributes[v].version Invalid"}},
		{spec(`'sharedCounters':[{'name':'c','counters':{'A':{'value':'1'}}},{'name':'c'}]`), []string{
			"spec Invalid", "spec.sharedCounters[0].counters Invalid", "spec.sharedCounters[1] Duplicate",
			"spec.sharedCounters[1].counters Required"}},
		{spec(`'devices':[{'consumesCounters':[{'counterSet':''}]}]`), []string{
			"spec.devices[0].consumesCounters[0].counterSet Required",
			"spec.devices[0].consumesCounters[0].counters Required"}},
		{spec(`'devices':[{'bindingConditions':['a'],'bindingFailureConditions':['a','-']}]`), []string{
			"spec.devices[0].bindingFailureConditions[0] Invalid",
			"spec.devices[0].bindingFailureConditions[1] Invalid"}},
		{spec(`'devices':[{'capacity':{'-':{'value':'1','requestPolicy':{}}}}]`), []string{
			"spec.devices[0].capacity Invalid", "spec.devices[0].capacity[-].requestPolicy Forbidden"}},
		{
			spec(`'devices':[{'bindingConditions':['a','a','b','c','d'],'bindingFailureConditions':['e']}]`),
			[]string{
				"spec.devices[0].bindingConditions TooMany", "spec.devices[0].bindingConditions[1] Duplicate",
			},
		},
		{spec(`'devices':[{'capacity':{'a/b/c':{'value':'1'}}}]`), nil},
		{spec(`'devices':[{'taints':[{'key':'a','effect':'x'}]}]`), []string{
			"spec.devices[0].taints[0].effect NotSupported",
		}},
		{spec(`'devices':[` + strings.Join(many, ",") + `]`), []string{"spec.devices TooMany"}},
	} {
		s := decode(t, k, &resourcev1.ResourceSlice{}, validSlice, test.patch)
		got := kindtest.Causes(k.Validate(t.Context(), s))
		if !slices.Equal(got, test.want) {
			t.Errorf("with %s:\n got %q\nwant %q", test.patch, got, test.want)
		}
	}
	old := decode(t, k, &resourcev1.ResourceSlice{}, validSlice)
	s := decode(t, k, &resourcev1.ResourceSlice{}, validSlice,
		spec(`'driver':'other','nodeName':'m','pool':{'name':'q'}`))
	if got := kindtest.Causes(k.ValidateUpdate(t.Context(), s, old)); !slices.Equal(got,
		[]string{"spec.driver Invalid", "spec.nodeName Invalid", "spec.pool.name Invalid"}) {
		t.Errorf("changed: got %q", got)
	}

	// A change of a dropped field increments the generation too.
	s = decode(t, k, &resourcev1.ResourceSlice{}, validSlice,
		spec(`'devices':[{'name':'a','attributes':{'m':{'string':'x','ints':[1]}}}]`))
	old = decode(t, k, &resourcev1.ResourceSlice{}, validSlice,
		spec(`'devices':[{'name':'a','attributes':{'m':{'string':'x'}}}]`))
	old.Generation, s.Generation = 3, 3
	k.PrepareUpdate(t.Context(), s, old)
	if s.Generation != 4 || s.Spec.Devices[0].Attributes["m"].IntValues != nil {
		t.Errorf("with a list of an alpha feature: %+v", s)
	}
}

func TestCapacity(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		policy string
		want   []string
	}{
		{`'default':'2'`, nil},
		{`'validValues':['1'],'validRange':{'min':'1'}`, []string{"c.requestPolicy Forbidden"}},
		{`'validValues':['1']`, []string{"c.requestPolicy.default Required"}},
		{`'default':'2','validValues':['1','2','4']`, nil},
		{`'default':'3','validValues':['2','1','2','9']`, []string{
			"c.requestPolicy.validValues Invalid", "c.requestPolicy.validValues[1] Invalid",
			"c.requestPolicy.validValues[2] Duplicate", "c.requestPolicy.validValues[3] Invalid"}},
		{`'default':'2','validRange':{}`, []string{"c.requestPolicy.validRange.min Required"}},
		{`'default':'4','validRange':{'min':'2','max':'8','step':'2'}`, nil},
		{`'default':'1','validRange':{'min':'2','max':'9'}`, []string{
			"c.requestPolicy.validRange.max Invalid", "c.requestPolicy.validRange.min Invalid",
		}},
		{`'default':'3','validRange':{'min':'2','step':'2'}`, []string{
			"c.requestPolicy.validRange.step Invalid",
		}},
		{`'default':'2','validRange':{'min':'2','step':'0'}`, []string{
			"c.requestPolicy.validRange.step Invalid",
		}},
		{`'default':'2500m','validRange':{'min':'2','step':'1'}`, nil},
	} {
		var c resourcev1.DeviceCapacity
		if err := json.Unmarshal([]byte(strings.ReplaceAll(
			`{'value':'8','requestPolicy':{`+test.policy+`}}`, "'", `"`)), &c); err != nil {
			t.Fatal(err)
		}
		if got := kindtest.Causes(validateCapacity(&c, true, field.NewPath("c"))); !slices.Equal(got,
			test.want) {
			t.Errorf("%s:\n got %q\nwant %q", test.policy, got, test.want)
		}
	}
}
