// Package validatingadmissionpolicystatus checks the types in the expressions of validating
// admission policies. It writes warnings to their status, such as one about a field that the
// matched resources do not have.
//
// A policy is checked once per generation. Schemas and resources are discovered only when there is
// a policy to check.
package validatingadmissionpolicystatus

import (
	"context"
	"fmt"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	admissionapply "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	"k8s.io/client-go/discovery/cached/memory"
	admissioninformers "k8s.io/client-go/informers/admissionregistration/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/cache"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

const (
	// Name is the name of the controller in kube-controller-manager.
	Name = "validatingadmissionpolicy-status-controller"
	// FieldManager is the field manager of the status, as in kube-controller-manager.
	FieldManager = "validatingadmissionpolicy-status"
)

// Controller checks policies and updates their status.
type Controller struct {
	client   kubernetes.Interface
	policies admissioninformers.ValidatingAdmissionPolicyInformer
	checker  validating.TypeChecker // used by a single worker
}

// New returns a controller. The caller starts the informer of policies, which the admission plugin
// uses too.
func New(
	client kubernetes.Interface, policies admissioninformers.ValidatingAdmissionPolicyInformer,
) *Controller {
	policies.Informer() // registers it with the caller's factory
	return &Controller{
		client:   client,
		policies: policies,
		checker: validating.TypeChecker{
			SchemaResolver: &resolver.ClientDiscoveryResolver{Discovery: client.Discovery()},
			RestMapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(
				client.Discovery())),
		},
	}
}

// Run runs the controller until ctx ends. It returns when all goroutines of the controller have
// ended.
func (c *Controller) Run(ctx context.Context) error {
	queue := loop.New(Name)
	add := func(obj any) {
		if policy, ok := obj.(*admissionv1.ValidatingAdmissionPolicy); ok && unchecked(policy) {
			queue.Soon(policy.Name)
		}
	}
	informer := c.policies.Informer()
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    add,
		UpdateFunc: func(_, obj any) { add(obj) },
	})
	if err != nil {
		return fmt.Errorf("%s: %w", Name, err)
	}
	// fails only for a handler of another informer
	defer func() { _ = informer.RemoveEventHandler(registration) }()
	return queue.Run(ctx, 1, c.sync, registration.HasSyncedChecker())
}

func unchecked(policy *admissionv1.ValidatingAdmissionPolicy) bool {
	return policy.Status.ObservedGeneration < policy.Generation
}

func (c *Controller) sync(ctx context.Context, name string) (time.Duration, error) {
	policy, err := c.policies.Lister().Get(name)
	if apierrors.IsNotFound(err) || err == nil && !unchecked(policy) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	checked := admissionapply.TypeChecking()
	for _, w := range c.checker.Check(policy) {
		checked.WithExpressionWarnings(admissionapply.ExpressionWarning().WithFieldRef(w.FieldRef).
			WithWarning(w.Warning))
	}
	status := admissionapply.ValidatingAdmissionPolicyStatus().
		WithObservedGeneration(policy.Generation).WithTypeChecking(checked)
	_, err = c.client.AdmissionregistrationV1().ValidatingAdmissionPolicies().ApplyStatus(ctx,
		admissionapply.ValidatingAdmissionPolicy(name).WithUID(policy.UID).WithStatus(status),
		metav1.ApplyOptions{FieldManager: FieldManager, Force: true})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // deleted, perhaps recreated
		return 0, nil
	}
	return 0, err
}
