// Package validatingadmissionpolicystatus checks the types in the expressions of validating
// admission policies. It writes warnings to their status, such as one about a field that the
// matched resources do not have.
//
// A policy is checked once per generation. Schemas and resources are discovered only when there is
// a policy to check.
package validatingadmissionpolicystatus

import (
	"context"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	admissionapply "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/cache"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

const (
	// Name is the name of the loop in kube-controller-manager.
	Name = "validatingadmissionpolicy-status-controller"
	// FieldManager is the field manager of the status, as in kube-controller-manager.
	FieldManager = "validatingadmissionpolicy-status"
)

// Loop is the loop that checks policies and updates their status.
func Loop() loop.Loop {
	return loop.Loop{
		Name: Name, Alias: "validatingadmissionpolicy-status",
		Purpose: "type-checks the expressions of ValidatingAdmissionPolicies",
		Begin:   begin,
		After:   []schema.GroupResource{admissionv1.Resource("validatingadmissionpolicies")},
	}
}

type controller struct {
	*loop.Controller
	policies cache.SharedIndexInformer
	checker  validating.TypeChecker // used by a single worker
}

func begin(l *loop.Controller) loop.Work {
	discovery := l.Client.Discovery()
	c := &controller{
		Controller: l,
		policies:   l.Informer(&admissionv1.ValidatingAdmissionPolicy{}),
		checker: validating.TypeChecker{
			SchemaResolver: &resolver.ClientDiscoveryResolver{Discovery: discovery},
			RestMapper:     restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(discovery)),
		},
	}
	return loop.Work{Sync: c.sync, Watches: []loop.Watch{
		loop.On(c.policies, func(_, policy *admissionv1.ValidatingAdmissionPolicy) {
			if policy != nil && unchecked(policy) {
				c.Enqueue(policy.Name)
			}
		}),
	}}
}

func unchecked(policy *admissionv1.ValidatingAdmissionPolicy) bool {
	return policy.Status.ObservedGeneration < policy.Generation
}

func (c *controller) sync(ctx context.Context, name string) (time.Duration, error) {
	policy := loop.Get[admissionv1.ValidatingAdmissionPolicy](c.policies, name)
	if policy == nil || !unchecked(policy) {
		return 0, nil
	}
	checked := admissionapply.TypeChecking()
	for _, w := range c.checker.Check(policy) {
		checked.WithExpressionWarnings(admissionapply.ExpressionWarning().WithFieldRef(w.FieldRef).
			WithWarning(w.Warning))
	}
	status := admissionapply.ValidatingAdmissionPolicyStatus().
		WithObservedGeneration(policy.Generation).WithTypeChecking(checked)
	_, err := c.Client.AdmissionregistrationV1().ValidatingAdmissionPolicies().ApplyStatus(ctx,
		admissionapply.ValidatingAdmissionPolicy(name).WithUID(policy.UID).WithStatus(status),
		metav1.ApplyOptions{FieldManager: FieldManager, Force: true})
	return 0, loop.IgnoreChanged(err) // deleted, perhaps recreated
}
