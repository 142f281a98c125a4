package resource

import (
	"slices"
	"testing"

	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/kind/kindtest"
)

func TestResourcePoolStatusRequests(t *testing.T) {
	t.Parallel()
	type request = resourcev1alpha3.ResourcePoolStatusRequest
	k := ResourcePoolStatusRequests()
	const question = `{'metadata':{'name':'x'},'spec':{'driver':'d.example.com'}}`
	answer := func(s string) string { return `{'status':{` + s + `}}` }
	pool := func(p string) string {
		return answer(
			`'poolCount':1,'pools':[{'driver':'d.example.com','poolName':'a/b','generation':1,` + p + `}]`)
	}
	for _, c := range []struct {
		how, old, patch string
		want            []string
	}{
		{"create", "", question, nil},
		{"create", "", `{'spec':{'driver':'','poolName':'A','limit':0}}`, []string{
			"spec.driver Required", "spec.limit Invalid", "spec.poolName Invalid",
		}},
		{
			"create", "",
			`{'spec':{'driver':'D.example.com','limit':1001,'defaultPartitionTypeAttribute':'a.b/c'}}`,
			[]string{"spec.defaultPartitionTypeAttribute Forbidden", "spec.limit Invalid"},
		},
		{"update", question, question, nil},
		{"update", question, `{'spec':{'driver':'e.example.com'}}`, []string{"spec Invalid"}},
		{"status", "", answer(`'poolCount':0`), nil},
		{"status", "", answer(``), []string{"status.poolCount Required"}},
		{"status", answer(`'poolCount':0`), answer(`'poolCount':1`), []string{"status Invalid"}},
		{"status", "", pool(`'totalDevices':3,'nodeName':'n'`), nil},
		{"status", "", pool(`'totalDevices':-1,'nodeName':'N','resourceSliceCount':0`),
			[]string{
				"status.pools[0].nodeName Invalid", "status.pools[0].resourceSliceCount Invalid",
				"status.pools[0].totalDevices Invalid",
			}},
		{"status", "", pool(`'partitionSummary':[{'attribute':'a','type':'t','total':1,'allocatable':1},
			{'attribute':'a','type':'t','total':1}]`),
			[]string{
				"status.pools[0].partitionSummary[1] Duplicate",
				"status.pools[0].partitionSummary[1].allocatable Required",
			}},
		{"status", "",
			pool(`'shareableSummary':{'fullyAvailableDevices':0,
			'capacity':[{'name':'c','total':'1','consumed':'0'}]}`),
			[]string{
				"status.pools[0].shareableSummary.capacity[0].available Required",
				"status.pools[0].shareableSummary.partiallyAvailableDevices Required",
			}},
		{"status", "", answer(`'poolCount':0,'pools':[{}]`),
			[]string{
				"status.pools[0].driver Required", "status.pools[0].generation Required",
				"status.pools[0].poolName Required",
			}},
	} {
		old := &request{}
		if c.old != "" {
			old = decode(t, k, old, c.old)
		}
		obj := decode(t, k, &request{}, c.patch)
		var errs field.ErrorList
		switch c.how {
		case "create":
			errs = k.Validate(t.Context(), obj)
		case "update":
			errs = k.ValidateUpdate(t.Context(), obj, old)
		default:
			errs = k.Status.Validate(t.Context(), obj, old)
		}
		if got := kindtest.Causes(errs); !slices.Equal(got, c.want) {
			t.Errorf("%s %s:\n got %q\nwant %q", c.how, c.patch, got, c.want)
		}
	}
}
