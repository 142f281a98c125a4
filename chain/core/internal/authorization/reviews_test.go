package authorization

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/kinproc/kinproc/chain/kind"
)

// asked records the attributes of the last request. It allows alice, denies eve, and has no opinion
// on others.
type asked struct{ attributes authorizer.Attributes }

func (a *asked) Authorize(
	_ context.Context, attributes authorizer.Attributes,
) (authorizer.Decision, string, error) {
	a.attributes = attributes
	switch attributes.GetUser().GetName() {
	case "alice":
		return authorizer.DecisionAllow, "alice", nil
	case "eve":
		return authorizer.DecisionDeny, "eve", nil
	}
	return authorizer.DecisionNoOpinion, "", errors.New("unsure")
}

func (a *asked) RulesFor(
	context.Context, user.Info, string,
) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	return []authorizer.ResourceRuleInfo{
		&authorizer.DefaultResourceRuleInfo{Verbs: []string{"get"}, Resources: []string{"pods"}},
	}, nil, true, errors.New("unsure")
}

func post[T kind.Object](ctx context.Context, v *kind.Virtual, review T) (T, error) {
	answer, err := v.New().(rest.Creater).Create(ctx, review, nil, nil)
	if err != nil {
		var none T
		return none, err
	}
	return answer.(T), nil
}

func causes(err error) string {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) || status.Status().Details == nil {
		return ""
	}
	var list []string
	for _, c := range status.Status().Details.Causes {
		list = append(list, c.Field+" "+strings.TrimPrefix(string(c.Type), "FieldValue"))
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

func TestSubjectAccessReviews(t *testing.T) {
	t.Parallel()
	type spec = authorizationv1.SubjectAccessReviewSpec
	pods := &authorizationv1.ResourceAttributes{Verb: "get", Resource: "pods"}
	selected := func(
		raw string, labels ...metav1.LabelSelectorRequirement,
	) *authorizationv1.ResourceAttributes {
		return &authorizationv1.ResourceAttributes{
			LabelSelector: &authorizationv1.LabelSelectorAttributes{RawSelector: raw, Requirements: labels},
		}
	}
	for name, test := range map[string]struct {
		spec spec
		meta metav1.ObjectMeta
		want string
	}{
		"both": {
			spec: spec{
				User:                  "a",
				ResourceAttributes:    pods,
				NonResourceAttributes: &authorizationv1.NonResourceAttributes{},
			},
			want: "spec Invalid",
		},
		"neither": {spec: spec{}, want: "spec Invalid, spec.user Invalid"},
		"metadata": {
			spec: spec{User: "a", ResourceAttributes: pods},
			meta: metav1.ObjectMeta{Name: "a"},
			want: "metadata Invalid",
		},
		"no selector": {
			spec: spec{User: "a", ResourceAttributes: selected("")},
			want: "spec.resourceAttributes.labelSelector.requirements Required",
		},
		"two selectors": {
			spec: spec{User: "a", ResourceAttributes: selected("a=b", metav1.LabelSelectorRequirement{
				Key:      "a",
				Operator: "Exists",
			})},
			want: "spec.resourceAttributes.labelSelector.rawSelector Invalid",
		},
		"bad selector": {
			spec: spec{
				User:               "a",
				ResourceAttributes: selected("", metav1.LabelSelectorRequirement{Key: "-", Operator: "In"}),
			},
			want: "spec.resourceAttributes.labelSelector.requirements[0].key Invalid, " +
				"spec.resourceAttributes.labelSelector.requirements[0].values Required",
		},
		"new operator": {spec: spec{
			User:               "alice",
			ResourceAttributes: selected("", metav1.LabelSelectorRequirement{Key: "a", Operator: "Like"}),
		}},
	} {
		_, err := post(t.Context(), SubjectAccessReviews(&asked{}),
			&authorizationv1.SubjectAccessReview{ObjectMeta: test.meta, Spec: test.spec})
		if got := causes(err); got != test.want {
			t.Errorf("%s: got %q (%v), want %q", name, got, err, test.want)
		}
	}

	a := &asked{}
	field := &authorizationv1.FieldSelectorAttributes{Requirements: []metav1.FieldSelectorRequirement{
		{Key: "spec.nodeName", Operator: "In", Values: []string{"n"}},
		{Key: "x", Operator: "Exists"},
	}}
	label := &authorizationv1.LabelSelectorAttributes{RawSelector: "a in (b)"}
	r, err := post(t.Context(), SubjectAccessReviews(a), &authorizationv1.SubjectAccessReview{
		Spec: spec{
			User: "alice", Groups: []string{"g"}, Extra: map[string]authorizationv1.ExtraValue{"k": {"v"}},
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb:          "list",
				Resource:      "pods",
				FieldSelector: field,
				LabelSelector: label,
			},
		},
	})
	if err != nil || !r.Status.Allowed || r.Status.Denied || r.Status.Reason != "alice" {
		t.Errorf("got %+v, %v", r, err)
	}
	const want = "spec.resourceAttributes.fieldSelector partially ignored due to parse error"
	if r.Status.EvaluationError != want {
		t.Errorf("evaluation error %q, want %q", r.Status.EvaluationError, want)
	}
	fields, _ := a.attributes.GetFieldSelector()
	labels, _ := a.attributes.GetLabelSelector()
	if a.attributes.GetAPIVersion() != "*" || len(fields) != 1 || fields[0].Value != "n" ||
		len(labels) != 1 || a.attributes.GetUser().GetExtra()["k"][0] != "v" {
		t.Errorf("authorizer was asked for version %q with %v and %v",
			a.attributes.GetAPIVersion(), fields, labels)
	}
	if r, _ := post(t.Context(), SubjectAccessReviews(a), &authorizationv1.SubjectAccessReview{
		Spec: spec{User: "eve", ResourceAttributes: pods},
	}); !r.Status.Denied {
		t.Errorf("eve: %+v", r.Status)
	}
}

func TestLocalSubjectAccessReviews(t *testing.T) {
	t.Parallel()
	ctx := request.WithNamespace(t.Context(), "n")
	review := func(
		namespace, of string, n *authorizationv1.NonResourceAttributes,
	) (*authorizationv1.LocalSubjectAccessReview, error) {
		r := &authorizationv1.LocalSubjectAccessReview{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace},
			Spec:       authorizationv1.SubjectAccessReviewSpec{User: "alice"},
		}
		if r.Spec.NonResourceAttributes = n; n == nil {
			r.Spec.ResourceAttributes = &authorizationv1.ResourceAttributes{Namespace: of}
		}
		return post(ctx, LocalSubjectAccessReviews(&asked{}), r)
	}
	if r, err := review("n", "n", nil); err != nil || !r.Status.Allowed {
		t.Errorf("got %v, %v", r, err)
	}
	if _, err := review("n", "other", nil); causes(err) !=
		"spec.resourceAttributes.namespace Invalid" {
		t.Errorf("attributes for another namespace: %v", err)
	}
	if _, err := review("n", "", &authorizationv1.NonResourceAttributes{Path: "/"}); causes(err) !=
		"spec.nonResourceAttributes Invalid" {
		t.Errorf("non-resource attributes: %v", err)
	}
	if _, err := review("other", "other", nil); !apierrors.IsBadRequest(err) {
		t.Errorf("posted to another namespace: %v", err)
	}
}

func TestSelfReviews(t *testing.T) {
	t.Parallel()
	ctx := request.WithUser(t.Context(), &user.DefaultInfo{Name: "bob"})
	access := &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/a", Verb: "get"},
		},
	}
	a := &asked{}
	r, err := post(ctx, SelfSubjectAccessReviews(a), access)
	if err != nil || r.Status.Allowed || r.Status.Denied || r.Status.EvaluationError == "" ||
		a.attributes.GetPath() != "/a" || a.attributes.IsResourceRequest() {
		t.Errorf("got %+v, %v", r, err)
	}
	if _, err := post(t.Context(), SelfSubjectAccessReviews(a), access); !apierrors.IsBadRequest(err) {
		t.Errorf("no user: %v", err)
	}
	rules := &authorizationv1.SelfSubjectRulesReview{
		Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: "n"},
	}
	answer, err := post(ctx, SelfSubjectRulesReviews(a), rules)
	if err != nil || len(answer.Status.ResourceRules) != 1 || answer.Status.NonResourceRules == nil ||
		!answer.Status.Incomplete || answer.Status.EvaluationError == "" {
		t.Errorf("got %+v, %v", answer, err)
	}
	if _, err := post(ctx, SelfSubjectRulesReviews(a),
		&authorizationv1.SelfSubjectRulesReview{}); !apierrors.IsBadRequest(err) {
		t.Errorf("no namespace: %v", err)
	}
}
