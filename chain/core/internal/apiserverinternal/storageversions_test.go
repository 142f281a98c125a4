package apiserverinternal

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	apiserverinternalv1alpha1 "k8s.io/api/apiserverinternal/v1alpha1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/kind/kindtest"
)

func TestNames(t *testing.T) {
	t.Parallel()
	for name, valid := range map[string]bool{
		"apps.deployments": true,
		"a.b.io.widgets":   true,
		"pods":             false,
		".pods":            false,
		"apps.Pods":        false,
	} {
		if msgs := validateName(name, false); (len(msgs) == 0) != valid {
			t.Errorf("%s: %v", name, msgs)
		}
	}
}

func TestStatus(t *testing.T) {
	t.Parallel()
	server := func(id, encoding string) string {
		return `{'apiServerID':'` + id + `','encodingVersion':'` + encoding +
			`','decodableVersions':['v1','v2']}`
	}
	status := func(common, servers string) string {
		return `{'commonEncodingVersion':` + common + `,'storageVersions':[` + servers + `]}`
	}
	for _, c := range []struct {
		status string
		want   []string
	}{
		{status(`null`, ``), nil},
		{status(`'v1'`, server("a", "v1")), nil},
		{status(`null`, server("a", "v1")), []string{"status.commonEncodingVersion Invalid"}},
		{status(`null`, server("a", "v1")+","+server("b", "v2")), nil},
		{status(`'v1'`, server("a", "v1")+","+server("b", "v2")), []string{
			"status.commonEncodingVersion Invalid",
		}},
		{status(`''`, server("a", "v1")+","+server("b", "v2")), []string{
			"status.commonEncodingVersion Invalid",
		}},
		{status(`''`, ``), []string{"status.commonEncodingVersion Invalid"}},
		{status(`'v1'`, server("a", "v1")+","+server("a", "v1")), []string{
			"status.storageVersions[1].apiServerID Duplicate",
		}},
		{status(`'V/1'`, server("A", "V/1")), []string{
			"status.storageVersions[0].apiServerID Invalid",
			"status.storageVersions[0].decodableVersions Invalid",
			"status.storageVersions[0].encodingVersion Invalid",
		}},
		{`{'conditions':[{'type':'A','status':'True','reason':'','message':'m'}]}`, []string{
			"status[0].reason Required",
		}},
	} {
		var s apiserverinternalv1alpha1.StorageVersionStatus
		if err := json.Unmarshal([]byte(strings.ReplaceAll(c.status, "'", `"`)), &s); err != nil {
			t.Fatal(err)
		}
		got := kindtest.Causes(validateStatus(&s, field.NewPath("status")))
		if !slices.Equal(got, c.want) {
			t.Errorf("%s:\n got %q\nwant %q", c.status, got, c.want)
		}
	}
}
