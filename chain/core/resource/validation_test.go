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

	"github.com/kinproc/kinproc/chain/core/kind"
)

func causes(errs field.ErrorList) []string {
	var got []string
	for _, err := range errs {
		got = append(got, fmt.Sprintf("%s %s", err.Field, strings.TrimPrefix(string(err.Type), "FieldValue")))
	}
	slices.Sort(got)
	return slices.Compact(got)
}

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
	validClaim = `{'metadata':{'name':'x'},'spec':{'devices':{'requests':[{'name':'r','exactly':{'deviceClassName':'c'}}]}}}`
	validSlice = `{'metadata':{'name':'x'},'spec':{'driver':'d.example.com','pool':{'name':'p','resourceSliceCount':1},'nodeName':'n',
		'devices':[{'name':'a','attributes':{'model':{'string':'a'}}}]}}`
)

func TestResourceClaims(t *testing.T) {
	t.Parallel()
	k := ResourceClaims(func(_ context.Context, namespace string) (map[string]string, error) {
		return map[string]string{adminLabel: "false"}, nil
	}).(*kind.Kind[*resourcev1.ResourceClaim])
	devices := func(d string) string { return `{'spec':{'devices':{` + d + `}}}` }
	const at = "spec.devices."
	for _, test := range []struct {
		patch string
		want  []string
	}{
		{`{}`, nil},
		{devices(`'requests':[{'name':''}]`), []string{at + "requests[0].name Required"}},
		{devices(`'requests':[{'name':'r'},{'name':'s'}]`), []string{at + "requests[1] Required"}},
		{devices(`'requests':[{'exactly':{'adminAccess':true}}]`), []string{at + "requests[0].exactly.adminAccess Forbidden"}},
		{devices(`'requests':[{'exactly':{'allocationMode':'All','count':2}}]`), []string{at + "requests[0].exactly.count Invalid"}},
		{devices(`'requests':[{'exactly':{'allocationMode':'Some'}}]`), []string{at + "requests[0].exactly.allocationMode NotSupported"}},
		{devices(`'requests':[{'exactly':{'count':-1}}]`), []string{at + "requests[0].exactly.count Invalid"}},
		{devices(`'requests':[{'exactly':{'selectors':[{},{'cel':{'expression':'device.nothing'}}]}}]`), []string{
			at + "requests[0].exactly.selectors[0].cel Required", at + "requests[0].exactly.selectors[1].cel.expression Invalid"}},
		{devices(`'requests':[{'exactly':{'tolerations':[{'operator':'Exists','value':'a','effect':'x'},{}]}}]`), []string{
			at + "requests[0].exactly.tolerations[0].effect NotSupported", at + "requests[0].exactly.tolerations[0].value Invalid",
			at + "requests[0].exactly.tolerations[1].operator Invalid"}},
		{devices(`'constraints':[{'requests':['q'],'matchAttribute':'a'},{}]`), []string{
			at + "constraints[0].matchAttribute Invalid", at + "constraints[0].requests[0] Invalid", at + "constraints[1] Required"}},
		{devices(`'config':[{},{'opaque':{'driver':'D/','parameters':[]}}]`), []string{
			at + "config[0].opaque Required", at + "config[1].opaque.driver Invalid", at + "config[1].opaque.parameters Invalid"}},
	} {
		c := decode(t, k, &resourcev1.ResourceClaim{}, validClaim, test.patch)
		if got := causes(k.Validate(t.Context(), c)); !slices.Equal(got, test.want) {
			t.Errorf("with %s:\n got %q\nwant %q", test.patch, got, test.want)
		}
	}
	old := decode(t, k, &resourcev1.ResourceClaim{}, validClaim)
	changed := decode(t, k, &resourcev1.ResourceClaim{}, validClaim, devices(`'requests':[{'exactly':{'deviceClassName':'other'}}]`))
	if got := causes(k.ValidateUpdate(t.Context(), changed, old)); !slices.Equal(got, []string{"spec Invalid"}) {
		t.Errorf("a changed spec: %q", got)
	}

	for _, test := range []struct {
		status string
		want   []string
	}{
		{`'allocation':{'devices':{'results':[{'request':'r','driver':'d','pool':'p','device':'a'}]}},'reservedFor':[{'resource':'pods','name':'a','uid':'1'}]`, nil},
		{`'reservedFor':[{'name':'a','uid':'1'}]`, []string{"status.reservedFor Forbidden", "status.reservedFor[0].resource Required"}},
		{`'allocation':{'devices':{'results':[{'request':'q','driver':'','pool':'A','device':'a'}]}}`, []string{
			"status.allocation.devices.results[0].driver Required", "status.allocation.devices.results[0].pool Invalid", "status.allocation.devices.results[0].request Invalid"}},
		{`'devices':[{'driver':'d','pool':'p','device':'a'}]`, []string{"status.devices[0] Invalid"}},
	} {
		c := decode(t, k, &resourcev1.ResourceClaim{}, validClaim, `{'status':{`+test.status+`}}`)
		if got := causes(k.Status.Validate(t.Context(), c, old)); !slices.Equal(got, test.want) {
			t.Errorf("status %s:\n got %q\nwant %q", test.status, got, test.want)
		}
	}
}

func TestResourceSlices(t *testing.T) {
	t.Parallel()
	k := ResourceSlices().(*kind.Kind[*resourcev1.ResourceSlice])
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
		{spec(`'driver':'A/b','pool':{'name':'p//q','generation':-1}`), []string{"spec.driver Invalid", "spec.pool.generation Invalid", "spec.pool.name Invalid"}},
		{spec(`'nodeName':null`), []string{"spec Required"}},
		{spec(`'allNodes':false`), []string{"spec Invalid", "spec.allNodes Invalid"}},
		{spec(`'nodeName':null,'perDeviceNodeSelection':true`), []string{"spec.devices[0] Required"}},
		{spec(`'devices':[{'nodeName':'n'}]`), []string{"spec.devices[0] Invalid"}},
		{spec(`'devices':[{},{'name':'a'}]`), []string{"spec.devices[1].name Duplicate"}},
		{spec(`'devices':[{'attributes':{'a-b':{'bool':true},'v':{'version':'1'},'n':{}}}]`), []string{
			"spec.devices[0].attributes[a-b] Invalid", "spec.devices[0].attributes[n] Invalid", "spec.devices[0].attributes[v].version Invalid"}},
		{spec(`'devices':[{'taints':[{'key':'a','effect':'x'}]}]`), []string{"spec.devices[0].taints[0].effect NotSupported"}},
		{spec(`'devices':[` + strings.Join(many, ",") + `]`), []string{"spec.devices TooMany"}},
	} {
		s := decode(t, k, &resourcev1.ResourceSlice{}, validSlice, test.patch)
		got := causes(k.Validate(t.Context(), s))
		if !slices.Equal(got, test.want) {
			t.Errorf("with %s:\n got %q\nwant %q", test.patch, got, test.want)
		}
	}
	old := decode(t, k, &resourcev1.ResourceSlice{}, validSlice)
	s := decode(t, k, &resourcev1.ResourceSlice{}, validSlice, spec(`'driver':'other','nodeName':'m','pool':{'name':'q'}`))
	if got := causes(k.ValidateUpdate(t.Context(), s, old)); !slices.Equal(got, []string{"spec.driver Invalid", "spec.nodeName Invalid", "spec.pool.name Invalid"}) {
		t.Errorf("changed: %q", got)
	}
}
