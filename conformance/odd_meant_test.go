package conformance_test

import (
	"regexp"
	"strings"
)

// meantOdd are differences between odd requests' answers that are meant.
var meantOdd = []struct {
	pattern *regexp.Regexp
	reason  string
}{
	{
		regexp.MustCompile(`status: want 404, got 400; .*\n.*-X 'PATCH'`),
		"1.37 (k8s.io/apiserver) refuses a patch that is no JSON before it looks for the object",
	},
	{
		regexp.MustCompile(`status: want 200, got 422; .*"field":"ignoreStoreReadErrorWithClusterBreakingPotential"`),
		"1.37 has the deletion of objects that cannot be read switched on, and so its option is validated",
	},
	{
		regexp.MustCompile(`validatingadmissionpolicies/status, .*: status: want (422|500), got 404`),
		"the status of a policy that is not there can be applied in 1.36, as a policy without a specification",
	},
	{
		regexp.MustCompile(`example\.com\..*: status: want (429|503), got`),
		"a custom resource is served as soon as it is established",
	},
	{
		regexp.MustCompile(`core\.v1\.services/.*causes: want spec.clusterIPs FieldValueInvalid; causes: unwanted metadata.name FieldValueRequired`),
		"kube-apiserver asks for an address in the name of a service that has none, and blames the address",
	},
}

// serverErrors are messages with which the Kubernetes libraries answer 500 and more where the client is wrong. kube-apiserver has to
// answer so too.
var serverErrors = regexp.MustCompile(strings.Join([]string{
	`failed to create typed patch object`,
	`failed to convert new object`,
	`failed to create RequestInfo`,
	`list element types are not identical`,
	`unknown patch type`,
	`Too large resource version`,
	`resourceVersion: Invalid value`, // of a read
	`strconv.ParseUint: parsing`,     // of a write
	`invalid resource name`,
	`target.(kind: Unsupported value|name: Required value)`, // of a binding
}, "|"))

func isMeant(f finding) bool {
	for _, m := range meantOdd {
		if m.pattern.MatchString(f.String()) {
			return true
		}
	}
	return false
}
