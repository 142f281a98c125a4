package aggregator

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
)

// groupPriorities are the same as in kube-apiserver. They order the groups in discovery, highest
// first.
var groupPriorities = map[string]int32{
	"":                             18000,
	"apps":                         17800,
	"events.k8s.io":                17750,
	"authentication.k8s.io":        17700,
	"authorization.k8s.io":         17600,
	"autoscaling":                  17500,
	"batch":                        17400,
	"certificates.k8s.io":          17300,
	"networking.k8s.io":            17200,
	"policy":                       17100,
	"rbac.authorization.k8s.io":    17000,
	"storage.k8s.io":               16800,
	"apiextensions.k8s.io":         16700,
	"admissionregistration.k8s.io": 16700,
	"scheduling.k8s.io":            16600,
	"coordination.k8s.io":          16500,
	"node.k8s.io":                  16300,
	"discovery.k8s.io":             16200,
	"resource.k8s.io":              16200,
	"flowcontrol.apiserver.k8s.io": 16100,
	"internal.apiserver.k8s.io":    16000,
	"storagemigration.k8s.io":      15800,
	"lifecycle.k8s.io":             15700,
}

// otherGroupPriority is for groups that are not in groupPriorities. They come last.
const otherGroupPriority = 1000

// versionPriorities holds kube-apiserver's version priorities, except those that follow from the
// version's name.
var versionPriorities = map[schema.GroupVersion]int32{
	{Version: "v1"}: 1,
	{Group: "admissionregistration.k8s.io", Version: "v1beta1"}: 12,
	{Group: "autoscaling", Version: "v2"}:                       30,
	{Group: "coordination.k8s.io", Version: "v1beta1"}:          13,
	{Group: "coordination.k8s.io", Version: "v1alpha2"}:         12,
	{Group: "flowcontrol.apiserver.k8s.io", Version: "v1"}:      21,
	{Group: "resource.k8s.io", Version: "v1"}:                   21,
	{Group: "resource.k8s.io", Version: "v1beta2"}:              15,
	{Group: "resource.k8s.io", Version: "v1alpha3"}:             1,
}

// priorities returns the group and version priority for the APIService of a local version.
func priorities(gv schema.GroupVersion) (group, versionPriority int32) {
	group, ok := groupPriorities[gv.Group]
	if !ok {
		group = otherGroupPriority
	}
	if p, ok := versionPriorities[gv]; ok {
		return group, p
	}
	switch {
	case version.CompareKubeAwareVersionStrings(gv.Version, "v0") < 0:
		// Alpha and beta versions sort before any GA version.
		return group, 9
	default:
		return group, 15
	}
}
