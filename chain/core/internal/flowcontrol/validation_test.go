package flowcontrol

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"

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
	k.Default(obj)
	return obj
}

func TestFlowSchemas(t *testing.T) {
	t.Parallel()
	const valid = `{'metadata':{'name':'x'},'spec':{'priorityLevelConfiguration':{'name':'p'},
		'rules':[{'subjects':[{'kind':'User','user':{'name':'u'}}],
		'nonResourceRules':[{'verbs':['get'],'nonResourceURLs':['/a/*']}]}]}}`
	k := FlowSchemas()
	rule := func(r string) string { return `{'spec':{'rules':[{` + r + `}]}}` }
	const at = "spec.rules[0]."
	for _, test := range []struct {
		patch string
		want  []string
	}{
		{`{}`, nil},
		{`{'spec':{'matchingPrecedence':1,'distinguisherMethod':{'type':'x'}}}`, []string{
			"spec.distinguisherMethod.type NotSupported", "spec.matchingPrecedence Invalid",
		}},
		{`{'metadata':{'name':'exempt'},'spec':{'matchingPrecedence':1}}`, []string{"spec Invalid"}},
		{rule(`'subjects':[]`), []string{at + "subjects Required"}},
		{rule(`'nonResourceRules':[]`), []string{"spec.rules[0] Required"}},
		{rule(`'subjects':[{'kind':'User','user':{'name':''},'group':{'name':'g'}}]`), []string{
			at + "subjects[0].group Forbidden", at + "subjects[0].user.name Required",
		}},
		{rule(`'subjects':[{'kind':'ServiceAccount','user':null}]`), []string{
			at + "subjects[0].serviceAccount Required",
		}},
		{rule(`'subjects':[{'kind':'ServiceAccount','user':null,
			'serviceAccount':{'name':'*','namespace':'A'}}]`),
			[]string{at + "subjects[0].serviceAccount.namespace Invalid"}},
		{
			rule(`'subjects':[{'kind':'ServiceAccount','user':null,'serviceAccount':{'name':'A'}}]`),
			[]string{
				at + "subjects[0].serviceAccount.name Invalid",
				at + "subjects[0].serviceAccount.namespace Required",
			},
		},
		{
			rule(
				`'nonResourceRules':[{'verbs':['feed'],'nonResourceURLs':['a','/a b','/a//b','/a*','/','']}]`),
			[]string{
				at + "nonResourceRules[0].nonResourceURLs[0] Invalid",
				at + "nonResourceRules[0].nonResourceURLs[1] Invalid",
				at + "nonResourceRules[0].nonResourceURLs[2] Invalid",
				at + "nonResourceRules[0].nonResourceURLs[3] Invalid",
				at + "nonResourceRules[0].nonResourceURLs[5] Invalid",
				at + "nonResourceRules[0].verbs NotSupported",
			},
		},
		{
			rule(
				`'resourceRules':[{'verbs':['*','get'],'apiGroups':[],'resources':['*','a'],'namespaces':[]}]`),
			[]string{
				at + "resourceRules[0].apiGroups Required", at + "resourceRules[0].namespaces Required",
				at + "resourceRules[0].resources Invalid", at + "resourceRules[0].verbs Invalid",
			},
		},
		{rule(`'resourceRules':[{'verbs':['*'],'apiGroups':['*'],'resources':['*'],'clusterScope':true,
			'namespaces':['*','a']}]`), []string{at + "resourceRules[0].namespaces Invalid"}},
		{
			rule(
				`'resourceRules':[{'verbs':['*'],'apiGroups':['*'],'resources':['*'],'namespaces':['a','B']}]`),
			[]string{at + "resourceRules[0].namespaces[1] Invalid"},
		},
	} {
		f := decode(t, k, &flowcontrolv1.FlowSchema{}, valid, test.patch)
		if got := kindtest.Causes(k.Validate(t.Context(), f)); !slices.Equal(got, test.want) {
			t.Errorf("with %s:\n got %q\nwant %q", test.patch, got, test.want)
		}
	}
	status := decode(t, k, &flowcontrolv1.FlowSchema{},
		`{'status':{'conditions':[{'type':'a'},{'type':'a'},{}]}}`)
	if got := kindtest.Causes(k.Status.Validate(t.Context(), status, status)); !slices.Equal(got,
		[]string{"status.conditions[1].type Duplicate", "status.conditions[2].type Required"}) {
		t.Errorf("status: %q", got)
	}
	status.GenerateName, status.ManagedFields = "a-", []metav1.ManagedFieldsEntry{{Manager: "m"}}
	if k.Status.Prepare(t.Context(), status, &flowcontrolv1.FlowSchema{}); status.GenerateName != "" ||
		len(status.ManagedFields) != 1 {
		t.Errorf("metadata after a status update: %+v", status.ObjectMeta)
	}
}

func TestPriorityLevels(t *testing.T) {
	t.Parallel()
	const valid = `{'metadata':{'name':'x'},'spec':{'type':'Limited',
		'limited':{'limitResponse':{'type':'Queue','queuing':{}}}}}`
	k := PriorityLevelConfigurations()
	const at = "spec.limited."
	for _, test := range []struct {
		patch string
		want  []string
	}{
		{`{}`, nil},
		{`{'spec':{'type':'Exempt'}}`, []string{"spec.limited Forbidden", "spec.type Invalid"}},
		{`{'metadata':{'name':'exempt'}}`, []string{"spec Invalid", "spec.type Invalid"}},
		{`{'metadata':{'name':'exempt'},'spec':{'type':'Exempt','limited':null,
			'exempt':{'nominalConcurrencyShares':5,'lendablePercent':101}}}`,
			[]string{"spec.exempt.lendablePercent Invalid"}},
		{`{'metadata':{'name':'exempt'},'spec':{'type':'Exempt','limited':null}}`, nil},
		{`{'metadata':{
			'annotations':{'flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares':''}}}`,
			[]string{"metadata.annotations Forbidden"}},
		{`{'spec':{'limited':null,'exempt':{}}}`, []string{
			"spec.exempt Forbidden", "spec.limited Required",
		}},
		{`{'spec':{'limited':{'lendablePercent':-1,'borrowingLimitPercent':-1,
			'limitResponse':{'type':'Reject'}}}}`, []string{
			at + "borrowingLimitPercent Invalid", at + "lendablePercent Invalid",
			at + "limitResponse.queuing Forbidden"}},
		{`{'spec':{'type':''}}`, []string{"spec.limited Forbidden", "spec.type Required"}},
		{`{'spec':{'type':'x'}}`, []string{"spec.limited Forbidden", "spec.type NotSupported"}},
		{`{'spec':{'type':'x','limited':{'limitResponse':{'queuing':null}}}}`, []string{
			"spec.limited Forbidden", at + "limitResponse.queuing Required", "spec.type NotSupported",
		}},
		{`{'spec':{'type':'x','limited':{'limitResponse':{'type':''}}}}`, []string{
			"spec.limited Forbidden", at + "limitResponse.queuing Forbidden",
			at + "limitResponse.type Required", "spec.type NotSupported",
		}},
		{`{'spec':{'limited':{'limitResponse':{'type':''}}}}`, []string{
			at + "limitResponse.queuing Forbidden", at + "limitResponse.type Required",
		}},
		{`{'spec':{'limited':{'limitResponse':{'type':'x'}}}}`, []string{
			at + "limitResponse.queuing Forbidden", at + "limitResponse.type NotSupported",
		}},
		{`{'spec':{'limited':{'limitResponse':{'queuing':{'queues':1000,'handSize':7,
			'queueLengthLimit':-1}}}}}`, []string{
			at + "limitResponse.queuing.handSize Invalid",
			at + "limitResponse.queuing.queueLengthLimit Invalid"}},
		{`{'spec':{'limited':{'limitResponse':{'queuing':{'queues':10000001,'handSize':1}}}}}`, []string{
			at + "limitResponse.queuing.queues Invalid",
		}},
	} {
		p := decode(t, k, &flowcontrolv1.PriorityLevelConfiguration{}, valid, test.patch)
		if got := kindtest.Causes(k.Validate(t.Context(), p)); !slices.Equal(got, test.want) {
			t.Errorf("with %s:\n got %q\nwant %q", test.patch, got, test.want)
		}
	}
}

// TestBootstrapObjects checks that the server's own objects are valid and that defaulting does not
// change them. The loop that maintains them compares them with the stored objects.
func TestBootstrapObjects(t *testing.T) {
	t.Parallel()
	levels := PriorityLevelConfigurations()
	for _, p := range slices.Concat(bootstrap.MandatoryPriorityLevelConfigurations,
		bootstrap.SuggestedPriorityLevelConfigurations) {
		got := p.DeepCopy()
		levels.Default(got)
		if errs := levels.Validate(t.Context(), got); errs != nil ||
			!equality.Semantic.DeepEqual(got, p) {
			t.Errorf("%s: %v, spec %+v", p.Name, errs, got.Spec)
		}
	}
	schemas := FlowSchemas()
	for _, f := range slices.Concat(bootstrap.MandatoryFlowSchemas, bootstrap.SuggestedFlowSchemas) {
		got := f.DeepCopy()
		schemas.Default(got)
		if errs := schemas.Validate(t.Context(), got); errs != nil ||
			!equality.Semantic.DeepEqual(got, f) {
			t.Errorf("%s: %v, spec %+v", f.Name, errs, got.Spec)
		}
	}
}
