package conformance_test

import (
	"regexp"
	"strings"
)

// meantOdd lists the intended differences between the responses to odd requests of kinproc and of
// kube-apiserver 1.37.2.
var meantOdd = []struct {
	pattern *regexp.Regexp
	reason  string
}{
	{
		regexp.MustCompile(`validatingadmissionpolicies/.*: status: want (201|400|422|500), got 404; ` +
			`.*\n.*/status\?`),
		"kube-apiserver creates a policy that does not exist when its status is applied, " +
			"which no other kind allows",
	},
	{
		regexp.MustCompile(`status: want 500, got 4\d\d(; .*failed to create RequestInfo|` +
			`\n.*'HEAD'.*/watch[?'])`),
		"kube-apiserver answers the path of a watch without a resource with a text and a status of 500",
	},
	{
		regexp.MustCompile(`status: want 400, got 200; .*name must be provided.*\n.*` +
			`merge-patch.*"apiVersion":(null|"")`),
		"kube-apiserver loses the fields of an object whose version a merge patch removes",
	},
	{
		regexp.MustCompile(`: causes: want [^;]*(; causes: want [^;]*)*\n.*a{1000}a{1000}`),
		"kinproc reports the first 50,000 bytes of what is wrong with an object",
	},
	{
		regexp.MustCompile(`example\.com\..*: status: want (429|503|504), got`),
		"a custom resource is served as soon as it is established",
	},
	{
		regexp.MustCompile(`example\.com\..*: status: want \d+, got 404; .*got "404 page not found`),
		"a custom resource is served a moment after its definition was created",
	},
	{
		regexp.MustCompile(`: body/(.*body/status/(acceptedNames|conditions)|rows/0/cells/7).*\n` +
			`.*/customresourcedefinitions`),
		"the names of a definition are accepted earlier",
	},
	{
		regexp.MustCompile(`: (status: want (200, got 409|409, got 200); .*|` +
			`body/(rows/0/object/)?metadata/resourceVersion: want "<rv:\w+>", got "<rv:\w+>")\n` +
			`.*/customresourcedefinitions`),
		"the status of a definition changes once; kube-apiserver writes it twice, and later",
	},
	{
		regexp.MustCompile(`#\d+, [^:]*: body/details~1name: want "[^"]*", got "[^"]*"\n.*-X 'DELETE'`),
		"if several objects cannot be deleted, the error may name any of them",
	},
	{
		regexp.MustCompile(`status: want (403, got \d+|\d+, got 403).*\n.*` +
			`'Impersonate-User: system:node:`),
		"an impersonated node has its group or not, depending on the last impersonation",
	},
	{
		regexp.MustCompile(`status: want 410, got 200; .*\n.*resourceVersion=[1-9]\b`),
		"a server compacts its history five minutes after it was started",
	},
	{
		regexp.MustCompile(`body(/object)?: want \{.*"too old resource version: [1-9] `),
		"the cache from which a server answers watches begins later if the server is older",
	},
	{
		regexp.MustCompile(`01-protocol/watch, .*: body/stream/\d+/object/metadata/resourceVersion: ` +
			`want "<rv:\w+>", got "<rv:\w+>"\n`),
		"a watch that begins too early has shown these versions on one of the servers",
	},
	{
		regexp.MustCompile(`(?s)example\.com\..*: (answer: |status: want \d+, got 415; ).*` +
			`application/vnd\.kubernetes\.protobuf`),
		"kube-apiserver panics on custom resources in protobuf, or keeps reading",
	},
	{
		regexp.MustCompile(`core\.v1\.services/.*causes: want spec.clusterIPs FieldValueInvalid; ` +
			`causes: unwanted metadata\.name FieldValue(Required|Invalid)`),
		"kube-apiserver allocates an address for a service whose name is invalid, " +
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
	`unable to find api field in struct`,
	`unknown patch type`,
	`Too large resource version`,
	`resourceVersion: Invalid value`, // of a read
	`strconv.ParseUint: parsing`,     // of a write
	`invalid resource name|invalid key:`,
	`does not contain declared merge key`,
	`several disruption budgets`,                            // of an eviction
	`target.(kind: Unsupported value|name: Required value)`, // of a binding
}, "|"))

// reasonFor returns why a difference is intended, or "" if it is not.
func reasonFor(f finding) string {
	for _, m := range meantOdd {
		if m.pattern.MatchString(f.String()) {
			return m.reason
		}
	}
	return ""
}
