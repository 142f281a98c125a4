package apitest

import (
	"errors"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestAdmissionPolicies creates a policy that labels config maps, and another one that rejects
// config maps with too many entries.
func TestAdmissionPolicies(t *testing.T) {
	t.Parallel()
	_, client := quiet(t)
	ctx := t.Context()
	api := client.AdmissionregistrationV1()
	match := &admissionregistrationv1.MatchResources{
		ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
			RuleWithOperations: admissionregistrationv1.RuleWithOperations{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule: admissionregistrationv1.Rule{
					APIGroups:   []string{""},
					APIVersions: []string{"v1"},
					Resources:   []string{"configmaps"},
				},
			},
		}},
	}
	must(api.ValidatingAdmissionPolicies().Create(ctx,
		&admissionregistrationv1.ValidatingAdmissionPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: "small"},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
				MatchConstraints: match,
				Validations: []admissionregistrationv1.Validation{{
					Expression: "!has(object.data) || size(object.data) < 2",
				}},
			},
		}, metav1.CreateOptions{}))(t)
	must(api.ValidatingAdmissionPolicyBindings().Create(ctx,
		&admissionregistrationv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "small"},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName:        "small",
				ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
			},
		}, metav1.CreateOptions{}))(t)
	must(api.MutatingAdmissionPolicies().Create(ctx, &admissionregistrationv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "label"},
		Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			MatchConstraints: match, ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
			Variables: []admissionregistrationv1.Variable{{Name: "by", Expression: `"policy"`}},
			Mutations: []admissionregistrationv1.Mutation{
				{
					PatchType: admissionregistrationv1.PatchTypeApplyConfiguration,
					ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{
						Expression: `Object{metadata: Object.metadata{labels: {"by": variables.by}}}`,
					},
				},
				{
					PatchType: admissionregistrationv1.PatchTypeJSONPatch,
					JSONPatch: &admissionregistrationv1.JSONPatch{
						Expression: `[JSONPatch{op: "add",
							path: "/metadata/labels/" + jsonpatch.escapeKey("example.com/by"),
							value: object.metadata.labels["by"]}]`,
					},
				},
			},
		},
	}, metav1.CreateOptions{}))(t)
	must(api.MutatingAdmissionPolicyBindings().Create(ctx,
		&admissionregistrationv1.MutatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "label"},
			Spec:       admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: "label"},
		}, metav1.CreateOptions{}))(t)

	create := func(data map[string]string) (*corev1.ConfigMap, error) {
		return client.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "m-"},
			Data:       data,
		}, metav1.CreateOptions{})
	}
	eventually(t, "refusal", func() error {
		if _, err := create(map[string]string{"a": "", "b": ""}); !apierrors.IsInvalid(err) {
			return errors.Join(errors.New("was not refused"), err)
		}
		return nil
	})
	eventually(t, "label", func() error {
		m, err := create(nil)
		if err == nil && m.Labels["example.com/by"] != "policy" {
			err = errors.New("the label is missing")
		}
		return err
	})
}

// TestAdmissionLockout creates a policy that rejects everything. Access reviews must still work,
// and the policy's binding can be deleted.
func TestAdmissionLockout(t *testing.T) {
	t.Parallel()
	_, client := quiet(t)
	ctx := t.Context()
	api := client.AdmissionregistrationV1()
	must(api.ValidatingAdmissionPolicies().Create(ctx,
		&admissionregistrationv1.ValidatingAdmissionPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: "nothing"},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
				MatchConstraints: &admissionregistrationv1.MatchResources{
					ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
						RuleWithOperations: admissionregistrationv1.RuleWithOperations{
							Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
							Rule: admissionregistrationv1.Rule{
								APIGroups:   []string{"*"},
								APIVersions: []string{"*"},
								Resources:   []string{"*/*"},
							},
						},
					}},
				},
				Validations: []admissionregistrationv1.Validation{{Expression: "false"}},
			},
		}, metav1.CreateOptions{}))(t)
	must(api.ValidatingAdmissionPolicyBindings().Create(ctx,
		&admissionregistrationv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "nothing"},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName:        "nothing",
				ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
			},
		}, metav1.CreateOptions{}))(t)

	eventually(t, "refusal", func() error {
		_, err := client.CoreV1().ConfigMaps("default").Create(ctx,
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "m-"}}, metav1.CreateOptions{})
		if !apierrors.IsInvalid(err) {
			return errors.Join(errors.New("was not refused"), err)
		}
		return nil
	})
	review := must(client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx,
		&authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{
				ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "delete", Resource: "pods"},
			},
		}, metav1.CreateOptions{}))(t)
	if !review.Status.Allowed {
		t.Errorf("got status %+v, want allowed", review.Status)
	}
	// The binding can be deleted, which ends the lockout.
	if err := api.ValidatingAdmissionPolicyBindings().Delete(ctx, "nothing",
		metav1.DeleteOptions{}); err != nil {
		t.Errorf("delete the binding: %v", err)
	}
}
