package conformance_test

import (
	"regexp"
	"strings"
)

// meantOdd lists the intended differences between the responses to odd requests.
var meantOdd = []struct {
	pattern *regexp.Regexp
	reason  string
}{
	{
		regexp.MustCompile(`status: want 200, got 400; .*\n.*/pods/[^/]+/log`),
		"in 1.36, the log of a pod without a node is empty",
	},
	{
		regexp.MustCompile(
			`status: want \d+, got 422; .*ignoreStoreReadErrorWithClusterBreakingPotential`),
		"1.37 enables the deletion of objects that cannot be read, and therefore validates its option",
	},
	{
		regexp.MustCompile(
			`validatingadmissionpolicies/.*: status: want (201|422|500), got 404; .*\n.*/status\?`),
		"in 1.36, applying the status of a policy that does not exist creates a policy without a spec",
	},
	{
		regexp.MustCompile(`example\.com\..*: status: want (429|503), got`),
		"a custom resource is served as soon as it is established",
	},
	{
		regexp.MustCompile(`customresourcedefinitions.*: body/.*body/status/(acceptedNames|conditions)`),
		"the names of a definition are accepted earlier",
	},
	{
		regexp.MustCompile(`causes: want metadata\.ownerReferences\.\w+ FieldValueInvalid`),
		"1.37 (k8s.io/apimachinery) includes the index of an owner reference, " +
			"and reports missing fields as required",
	},
	{
		regexp.MustCompile(`apiextensions.*: body/columnDefinitions`),
		"1.37 (k8s.io/apiextensions-apiserver) prints more columns of a definition",
	},
	{
		regexp.MustCompile(`#\d+, [^:]*: body/details~1name: want "[^"]*", got "[^"]*"\n.*-X 'DELETE'`),
		"if several objects cannot be deleted, the error may name any of them",
	},
	{
		regexp.MustCompile(`status: want 410, got 200; .*\n.*resourceVersion=1&`),
		"a server compacts its history five minutes after it was started",
	},
	{
		regexp.MustCompile(`(?s)example\.com\..*: (answer: |status: want \d+, got 415; ).*` +
			`application/vnd\.kubernetes\.protobuf`),
		"kube-apiserver panics on custom resources in protobuf, or keeps reading",
	},
	{
		regexp.MustCompile(`core\.v1\.services/.*causes: want spec.clusterIPs FieldValueInvalid; ` +
			`causes: unwanted metadata.name FieldValueRequired`),
		"kube-apiserver allocates an address for a service without a name, " +
			"and reports the address as invalid",
	},
}

// serverErrors matches the messages of client errors that the Kubernetes libraries report with a
// status of 500 or above. kube-apiserver responds with the same status.
var serverErrors = regexp.MustCompile(strings.Join([]string{
	`failed to create typed patch object`,
	`failed to convert new object`,
	`failed to create RequestInfo`,
	`list element types are not identical`,
	`unknown patch type`,
	`Too large resource version`,
	`resourceVersion: Invalid value`, // of a read
	`strconv.ParseUint: parsing`,     // of a write
	`invalid resource name|invalid key:`,
	`does not contain declared merge key`,
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
