package admissionregistration

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kinproc/kinproc/chain/kind"
	"github.com/kinproc/kinproc/chain/kind/kindtest"
)

const (
	validWebhooks = `{"metadata":{"name":"x"},
		"webhooks":[{"name":"w.example.com","admissionReviewVersions":["v1"],"sideEffects":"None",
		"clientConfig":{"service":{"namespace":"a","name":"b"}},
		"rules":[{"apiGroups":[""],"apiVersions":["v1"],"resources":["pods"],"operations":["CREATE"]}]}]}`
	validPolicy = `{"metadata":{"name":"x"},"spec":{"matchConstraints":{"resourceRules":[
		{"apiGroups":[""],"apiVersions":["v1"],"resources":["pods"],"operations":["DELETE"]}]},
		"validations":[{"expression":"true"}]}}`
	validMutatingPolicy = `{"metadata":{"name":"x"},"spec":{"reinvocationPolicy":"Never",
		"matchConstraints":{"resourceRules":[
		{"apiGroups":[""],"apiVersions":["v1"],"resources":["pods"],"operations":["CREATE"]}]},
		"mutations":[{"patchType":"ApplyConfiguration","applyConfiguration":{"expression":"Object{}"}}]}}`
	validBinding = `{"metadata":{"name":"x"},"spec":{"policyName":"p","validationActions":["Deny"]}}`
)

// check unmarshals patch over the JSON of a valid object and returns the validation errors, each as
// "field reason".
func check[T kind.Object](
	t *testing.T, k *kind.Kind[T], example T, valid string, old *string, patch string,
) []string {
	t.Helper()
	decode := func(text string) T {
		obj := example.DeepCopyObject().(T)
		if err := json.Unmarshal([]byte(text), obj); err != nil {
			t.Fatalf("decode %s: %v", text, err)
		}
		k.Default(obj)
		return obj
	}
	obj := decode(valid)
	if patch != "" {
		if err := json.Unmarshal([]byte(patch), obj); err != nil {
			t.Fatalf("decode %s: %v", patch, err)
		}
		k.Default(obj)
	}
	if old != nil {
		return kindtest.Causes(k.ValidateUpdate(t.Context(), obj, decode(*old)))
	}
	return kindtest.Causes(k.Validate(t.Context(), obj))
}

func TestValidation(t *testing.T) {
	t.Parallel()
	rule := func(r string) string {
		return `{"webhooks":[{"rules":[` + strings.ReplaceAll(r, "'", `"`) + `]}]}`
	}
	spec := func(s string) string { return `{"spec":{` + strings.ReplaceAll(s, "'", `"`) + `}}` }
	long := strings.Repeat("a", maxAuditValueExpression)
	var annotations []string
	for i := range maxAuditAnnotations + 1 {
		annotations = append(annotations, fmt.Sprintf(`{'key':'k%d','valueExpression':'"v"'}`, i))
	}
	for _, test := range []struct {
		kind  string
		patch string
		want  []string
	}{
		{"vwc", "", nil},
		{"vwc", rule(`{'resources':['pods','pods/*','pods/status']}`), []string{
			"webhooks[0].rules[0].resources[2] Invalid",
		}},
		{"vwc", rule(`{'resources':['*/scale','pods/scale']}`), []string{
			"webhooks[0].rules[0].resources[1] Invalid",
		}},
		{"vwc", rule(`{'resources':['*/*','pods']}`), []string{"webhooks[0].rules[0].resources Invalid"}},
		{
			"vwc", rule(`{'resources':['','pods']}`), []string{"webhooks[0].rules[0].resources[0] Required"},
		},
		{"vwc", rule(`{'resources':['pods','*']}`), nil},
		{"vwc", rule(`{'resources':[],'apiGroups':[],'apiVersions':[],'operations':[]}`), []string{
			"webhooks[0].rules[0].apiGroups Required", "webhooks[0].rules[0].apiVersions Required",
			"webhooks[0].rules[0].operations Required", "webhooks[0].rules[0].resources Required"}},
		{"vwc", rule(`{'apiGroups':['*','a'],'apiVersions':['']}`), []string{
			"webhooks[0].rules[0].apiGroups Invalid", "webhooks[0].rules[0].apiVersions[0] Required",
		}},
		{"vwc", rule(`{'operations':['*','GET']}`), []string{
			"webhooks[0].rules[0].operations Invalid", "webhooks[0].rules[0].operations[1] NotSupported",
		}},
		{"vwc", `{"webhooks":[{"timeoutSeconds":0,"sideEffects":"Some","matchPolicy":"x",
			"admissionReviewVersions":["v2","v2","V"]}]}`, []string{
			"webhooks[0].admissionReviewVersions Invalid", "webhooks[0].admissionReviewVersions[1] Invalid",
			"webhooks[0].admissionReviewVersions[2] Invalid", "webhooks[0].matchPolicy NotSupported",
			"webhooks[0].sideEffects NotSupported", "webhooks[0].timeoutSeconds Invalid"}},
		{"vwc", `{"webhooks":[{"clientConfig":{"service":{"name":""}}}]}`, []string{
			"webhooks[0].clientConfig.service.namespace Required",
		}},
		{
			"vwc",
			`{"webhooks":[{"clientConfig":{"service":{"namespace":"","name":"","path":"x","port":70000}}}]}`,
			[]string{
				"webhooks[0].clientConfig.service.name Required",
				"webhooks[0].clientConfig.service.namespace Required",
				"webhooks[0].clientConfig.service.path Invalid",
				"webhooks[0].clientConfig.service.port Invalid",
			},
		},
		{"vwc", `{"webhooks":[{"matchConditions":[{"name":"a","expression":"variables.x"},
			{"name":"a","expression":" "},{"name":"-","expression":"1"},{}]}]}`, []string{
			"webhooks[0].matchConditions[0].expression Invalid",
			"webhooks[0].matchConditions[1].expression Required",
			"webhooks[0].matchConditions[1].name Duplicate",
			"webhooks[0].matchConditions[2].expression Invalid",
			"webhooks[0].matchConditions[2].name Invalid",
			"webhooks[0].matchConditions[3].expression Required",
			"webhooks[0].matchConditions[3].name Required"}},
		{"vwc", `{"webhooks":[{"namespaceSelector":{"matchLabels":{"a":"-"}},
			"objectSelector":{"matchExpressions":[{"key":"a","operator":"x"}]}}]}`, []string{
			"webhooks[0].namespaceSelector.matchLabels Invalid",
			"webhooks[0].objectSelector.matchExpressions[0].operator Invalid"}},
		{"mwc", `{"webhooks":[{"reinvocationPolicy":"x","name":"a.b"}]}`, []string{
			"webhooks[0].name Invalid", "webhooks[0].reinvocationPolicy NotSupported",
		}},

		{"vap", "", nil},
		{"vap", spec(`'matchConstraints':null`), []string{"spec.matchConstraints Required"}},
		{"vap", spec(`'matchConstraints':{'resourceRules':[]}`), []string{
			"spec.matchConstraints.resourceRules Required",
		}},
		{
			"vap", spec(`'matchConstraints':{'resourceRules':[{'resourceNames':['a','a','a/b']}]}`),
			[]string{
				"spec.matchConstraints.resourceRules[0].resourceNames[1] Duplicate",
				"spec.matchConstraints.resourceRules[0].resourceNames[2] Invalid",
			},
		},
		{"vap", spec(`'validations':[]`), []string{
			"spec.auditAnnotations Required", "spec.validations Required",
		}},
		{"vap", spec(`'validations':[{'expression':'true','message':'a\nb','reason':'NotFound',
			'messageExpression':' '}]`), []string{
			"spec.validations[0].message Invalid", "spec.validations[0].messageExpression Invalid",
			"spec.validations[0].reason NotSupported"}},
		{"vap", spec(`'validations':[{'expression':'true ||\nfalse'}]`), nil},
		{"vap", spec(`'validations':[{'expression':'true','reason':'Unauthorized'}]`), []string{
			"spec.validations[0].reason NotSupported",
		}},
		{"vap", spec(`'validations':[
			{'expression':'true','messageExpression':'authorizer.path(\'/a\').check(\'get\').reason()'}]`),
			[]string{"spec.validations[0].messageExpression Invalid"}},
		{"vap", spec(`'validations':[{'expression':'true','messageExpression':'1'}]`), []string{
			"spec.validations[0].messageExpression Invalid",
		}},
		{"vap", spec(`'validations':[{'expression':'params.a == 1'}]`), []string{
			"spec.validations[0].expression Invalid",
		}},
		{"vap", spec(`'paramKind':{'apiVersion':'v1','kind':'ConfigMap'},
			'validations':[{'expression':'params.a == 1'}]`), nil},
		{"vap", spec(`'paramKind':{}`), []string{
			"spec.paramKind.apiVersion Required", "spec.paramKind.kind Required",
		}},
		{"vap", spec(`'paramKind':{'apiVersion':'a/b/c','kind':'a b'}`), []string{
			"spec.paramKind.apiVersion Invalid", "spec.paramKind.kind Invalid",
		}},
		{"vap", spec(`'variables':[{'name':'n','expression':'object.a'},
			{'name':'m','expression':'variables.n == 1'}],'validations':[{'expression':'variables.m'}]`),
			nil},
		{"vap", spec(`'variables':[{'name':'for','expression':'1 +'},{}]`), []string{
			"spec.variables[0].expression Invalid", "spec.variables[0].name Invalid",
			"spec.variables[1].expression Required", "spec.variables[1].name Required",
		}},
		{
			"vap",
			spec(`'auditAnnotations':[` + strings.ReplaceAll(strings.Join(annotations, ","), `"v"`, `null`) +
				`]`), []string{"spec.auditAnnotations Invalid"},
		},
		{"vap", spec(`'auditAnnotations':[{'key':'a','valueExpression':'` + long +
			`b'},{'key':'a','valueExpression':'1'},{'key':'','valueExpression':''}]`), []string{
			"spec.auditAnnotations[0].valueExpression Required", "spec.auditAnnotations[1].key Duplicate",
			"spec.auditAnnotations[1].valueExpression Invalid", "spec.auditAnnotations[2].key Invalid",
			"spec.auditAnnotations[2].valueExpression Required"}},

		{"map", "", nil},
		{"map", spec(`'mutations':[{'patchType':'JSONPatch'}]`), []string{
			"spec.mutations[0].applyConfiguration Invalid", "spec.mutations[0].jsonPatch Required",
		}},
		{"map", spec(`'mutations':[{'patchType':'x'}]`), []string{
			"spec.mutations[0].patchType NotSupported",
		}},
		{"map", spec(`'mutations':[],'reinvocationPolicy':''`), []string{
			"spec.mutations Required", "spec.reinvocationPolicy Required",
		}},
		{"map", spec(`'mutations':[{'jsonPatch':{'expression':'[]'}}]`), []string{
			"spec.mutations[0].jsonPatch Invalid",
		}},
		{"map", spec(`'mutations':[{'applyConfiguration':{'expression':'1'}}]`), []string{
			"spec.mutations[0].applyConfiguration.expression Invalid",
		}},
		{"map", spec(`'matchConstraints':{'resourceRules':[{'operations':['DELETE']}]}`), []string{
			"spec.matchConstraints.resourceRules.operations NotSupported",
		}},

		{"vab", spec(`'validationActions':['Deny','Warn','Deny']`), []string{
			"spec.validationActions Invalid", "spec.validationActions[2] Duplicate",
		}},
		{
			"vab", spec(`'policyName':'A','paramRef':{'name':'a/b','parameterNotFoundAction':'x'}`),
			[]string{
				"spec.paramRef.name Invalid", "spec.paramRef.parameterNotFoundAction NotSupported",
				"spec.policyName Invalid",
			},
		},
		{"vab", spec(`'paramRef':{'parameterNotFoundAction':'Allow'}`), []string{
			"spec.paramRef Required",
		}},
		{"vab", spec(`'matchResources':{'matchPolicy':'x'}`), []string{
			"spec.matchResources.matchPolicy NotSupported",
		}},
		{"mab", spec(`'policyName':''`), []string{"spec.policyName Required"}},
		{"mab", spec(`'matchResources':{'resourceRules':[{'apiGroups':[''],'apiVersions':['v1'],
			'resources':['pods'],'operations':['DELETE']}]}`), []string{
			"spec.matchResources.resourceRules.operations NotSupported"}},
	} {
		var got []string
		slices.Sort(test.want)
		switch test.kind {
		case "vwc":
			got = check(t, ValidatingWebhookConfigurations(), &admissionv1.ValidatingWebhookConfiguration{},
				validWebhooks, nil, test.patch)
		case "mwc":
			got = check(t, MutatingWebhookConfigurations(), &admissionv1.MutatingWebhookConfiguration{},
				validWebhooks, nil, test.patch)
		case "vap":
			got = check(t, ValidatingAdmissionPolicies(ParamAccess{}),
				&admissionv1.ValidatingAdmissionPolicy{}, validPolicy, nil, test.patch)
		case "map":
			got = check(t, MutatingAdmissionPolicies(ParamAccess{}), &admissionv1.MutatingAdmissionPolicy{},
				validMutatingPolicy, nil, test.patch)
		case "vab":
			got = check(t, ValidatingAdmissionPolicyBindings(ParamAccess{}),
				&admissionv1.ValidatingAdmissionPolicyBinding{}, validBinding, nil, test.patch)
		case "mab":
			got = check(t, MutatingAdmissionPolicyBindings(ParamAccess{}),
				&admissionv1.MutatingAdmissionPolicyBinding{}, validBinding, nil, test.patch)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s with %s:\n got %q\nwant %q", test.kind, test.patch, got, test.want)
		}
	}
}

// TestToleratedMistakes checks that a stored mistake is tolerated and the same mistake in a new
// object is not.
func TestToleratedMistakes(t *testing.T) {
	t.Parallel()
	stored := `{"metadata":{"name":"x"},
		"webhooks":[{"name":"w.example.com","admissionReviewVersions":["v2"],"sideEffects":"Some",
		"clientConfig":{"url":"https://a"},
		"namespaceSelector":{"matchExpressions":[{"key":"a","operator":"In","values":["-"]}]},
		"matchConditions":[{"name":"a","expression":"nonsense"}]}]}`
	d, example := ValidatingWebhookConfigurations(), &admissionv1.ValidatingWebhookConfiguration{}
	if got := check(t, d, example, stored, &stored, ""); got != nil {
		t.Errorf("unchanged object was refused: %q", got)
	}
	if got := check(t, d, example, stored, nil, ""); len(got) != 4 {
		t.Errorf("got %q for a new object, want 4 mistakes", got)
	}
	policy := strings.Replace(validPolicy, `"validations"`,
		`"matchConditions":[{"name":"a","expression":"nonsense"}],"validations"`, 1)
	if got := check(t, ValidatingAdmissionPolicies(ParamAccess{}),
		&admissionv1.ValidatingAdmissionPolicy{}, policy, &policy, ""); got != nil {
		t.Errorf("policy with unchanged match conditions was refused: %q", got)
	}
}

type asked struct {
	authorizer.UnconditionalAuthorizer
	attributes authorizer.Attributes
}

func (a *asked) Authorize(
	_ context.Context, attributes authorizer.Attributes,
) (authorizer.Decision, string, error) {
	a.attributes = attributes
	return authorizer.DecisionNoOpinion, "", nil
}

// TestParamsAreAuthorized checks that users who may not read parameters cannot make a policy read
// them.
func TestParamsAreAuthorized(t *testing.T) {
	t.Parallel()
	a := &asked{}
	paramKind := &admissionv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
	access := ParamAccess{
		Authorizer: a,
		Resource: func(gvk schema.GroupVersionKind) (schema.GroupVersionResource, error) {
			return schema.GroupVersionResource{Version: gvk.Version, Resource: "configmaps"}, nil
		},
		ValidatingParamKind: func(context.Context, string) (*admissionv1.ParamKind, error) {
			return paramKind, nil
		},
	}
	ctx := request.WithUser(t.Context(), &user.DefaultInfo{Name: "alice"})
	root := request.WithUser(t.Context(),
		&user.DefaultInfo{Name: "root", Groups: []string{user.SystemPrivilegedGroup}})

	if got := kindtest.Causes(access.kindChanged(ctx, paramKind, nil)); !slices.Equal(got,
		[]string{"spec.paramKind Forbidden"}) {
		t.Errorf("got %q", got)
	}
	if at := a.attributes; at.GetResource() != "configmaps" || at.GetVerb() != "get" ||
		at.GetName() != "*" {
		t.Errorf("authorizer was asked for %s %s %s", at.GetVerb(), at.GetResource(), at.GetName())
	}
	if got := access.kindChanged(ctx, paramKind, paramKind.DeepCopy()); got != nil {
		t.Errorf("unchanged kind was refused: %v", got)
	}
	if got := access.kindChanged(root, paramKind, nil); got != nil {
		t.Errorf("member of system:masters was refused: %v", got)
	}
	binding := ValidatingAdmissionPolicyBindings(access)
	action := admissionv1.DenyAction
	b := &admissionv1.ValidatingAdmissionPolicyBinding{
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: "p", ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			ParamRef: &admissionv1.ParamRef{Name: "c", Namespace: "n", ParameterNotFoundAction: &action},
		},
	}
	if got := binding.Validate(ctx, b); len(got) != 1 || got[0].Field != "spec.paramRef" ||
		got[0].Type != field.ErrorTypeForbidden {
		t.Errorf("got %v", got)
	}
	if at := a.attributes; at.GetName() != "c" || at.GetNamespace() != "n" ||
		at.GetResource() != "configmaps" {
		t.Errorf("authorizer was asked for %s %s/%s", at.GetResource(), at.GetNamespace(), at.GetName())
	}
	if got := binding.ValidateUpdate(ctx, b, b.DeepCopy()); got != nil {
		t.Errorf("unchanged reference was refused: %v", got)
	}
}

// TestIdleRules checks that a rule that names resources that webhooks never see causes warnings. A
// rule that covers them with a wildcard does not.
func TestIdleRules(t *testing.T) {
	t.Parallel()
	k := ValidatingWebhookConfigurations()
	for _, test := range []struct {
		groups, resources []string
		want              int
	}{
		{[]string{""}, []string{"pods"}, 0},
		{[]string{"*"}, []string{"tokenreviews"}, 0},
		{
			[]string{"", "authentication.k8s.io"}, []string{"pods", "tokenreviews", "subjectaccessreviews"},
			1,
		},
		{
			[]string{"authorization.k8s.io"}, []string{"selfsubjectaccessreviews", "subjectaccessreviews"},
			2,
		},
	} {
		c := &admissionv1.ValidatingWebhookConfiguration{
			Webhooks: []admissionv1.ValidatingWebhook{{Rules: []admissionv1.RuleWithOperations{
				{Rule: admissionv1.Rule{
					APIGroups:   test.groups,
					APIVersions: []string{"v1"},
					Resources:   test.resources,
				}},
			}}},
		}
		if got := k.Warnings(t.Context(), c, c); len(got) != test.want {
			t.Errorf("%s of %s: got %q, want %d", test.resources, test.groups, got, test.want)
		}
	}
}

func TestReservedNames(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		prefix bool
		want   int
	}{
		{"a.static.k8s.io", false, 1},
		{"a.static.k8s.io", true, 0},
		{"static.k8s.io", false, 0},
		{"A.static.k8s.io", false, 2},
		{"a.k8s.io", false, 0},
	} {
		if got := validateName(test.name, test.prefix); len(got) != test.want {
			t.Errorf("%s: got %q, want %d", test.name, got, test.want)
		}
	}
}
