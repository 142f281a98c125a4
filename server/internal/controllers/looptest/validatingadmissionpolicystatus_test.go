package looptest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
	"github.com/kinproc/kinproc/server/servertest"
)

func TestValidatingAdmissionPolicyWarnings(t *testing.T) {
	t.Parallel()
	client := workloadtest.Client(t, servertest.Run(t))
	ctx, policies := t.Context(), client.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	checked := func(name string, generation int64) []admissionv1.ExpressionWarning {
		t.Helper()
		last := workloadtest.Await(t, fmt.Sprintf("generation %d is checked", generation),
			func(ctx context.Context) (*admissionv1.ValidatingAdmissionPolicy, error) {
				return policies.Get(ctx, name, metav1.GetOptions{})
			}, func(p *admissionv1.ValidatingAdmissionPolicy) bool {
				return p.Status.ObservedGeneration == generation
			})
		if last.Status.TypeChecking == nil {
			return nil
		}
		return last.Status.TypeChecking.ExpressionWarnings
	}
	_, err := policies.Create(ctx, &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{
				ResourceRules: []admissionv1.NamedRuleWithOperations{{
					RuleWithOperations: admissionv1.RuleWithOperations{
						Operations: []admissionv1.OperationType{admissionv1.Create},
						Rule: admissionv1.Rule{
							APIGroups:   []string{"apps"},
							APIVersions: []string{"v1"},
							Resources:   []string{"deployments"},
						},
					},
				}},
			},
			Validations: []admissionv1.Validation{
				{Expression: "object.spec.replicas > 1"},
				{Expression: "object.spec.replicas > 1", MessageExpression: "string(object.spec.nothing)"},
				{Expression: "object.spec.replicas == 'one'"},
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	warnings := checked("p", 1)
	if len(warnings) != 2 || warnings[0].FieldRef != "spec.validations[1].messageExpression" ||
		warnings[1].FieldRef != "spec.validations[2].expression" ||
		!strings.Contains(warnings[0].Warning, "nothing") {
		t.Errorf("unexpected warnings: %+v", warnings)
	}
	current, err := policies.Get(ctx, "p", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	current.Spec.Validations = current.Spec.Validations[:1]
	if _, err := policies.Update(ctx, current, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if warnings := checked("p", 2); len(warnings) != 0 {
		t.Errorf("unexpected warnings about a correct policy: %+v", warnings)
	}
}
