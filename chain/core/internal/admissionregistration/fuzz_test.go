package admissionregistration

import (
	"strings"
	"testing"

	"github.com/kinproc/kinproc/chain/kind/kindtest"
)

func FuzzValidatingAdmissionPolicy(f *testing.F) {
	kindtest.Fuzz(f, ValidatingAdmissionPolicies(ParamAccess{}), validPolicy,
		strings.Replace(validPolicy, `"validations"`,
			`"variables":[{"name":"v","expression":"object.a"}],"paramKind":{"apiVersion":"v1","kind":"K"},
		"auditAnnotations":[{"key":"k","valueExpression":"variables.v"}],"matchConditions":[{"name":"m","expression":"true"}],"validations"`, 1))
}

func FuzzMutatingAdmissionPolicy(f *testing.F) {
	const constraints = `"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["pods"]}]}`
	kindtest.Fuzz(f, MutatingAdmissionPolicies(ParamAccess{}),
		`{"metadata":{"name":"p"},"spec":{"reinvocationPolicy":"Never",`+constraints+
			`,"mutations":[{"patchType":"ApplyConfiguration","applyConfiguration":{"expression":"Object{}"}}]}}`,
		`{"metadata":{"name":"p"},"spec":{"reinvocationPolicy":"IfNeeded",`+constraints+
			`,"variables":[{"name":"v","expression":"1"}],
		"mutations":[{"patchType":"JSONPatch","jsonPatch":{"expression":"[JSONPatch{op: 'add', path: '/a', value: variables.v}]"}}]}}`)
}
