package admission

import (
	"context"
	"errors"
	"fmt"
	"io"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	podsecurityadmission "k8s.io/pod-security-admission/admission"
	podsecurityload "k8s.io/pod-security-admission/admission/api/load"
	podsecurity "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/metrics"
	podsecuritypolicy "k8s.io/pod-security-admission/policy"
)

// podSecurity (PodSecurity) enforces the Pod Security Standards that the labels of a pod's
// namespace ask for (KEP-2579).
type podSecurity struct {
	*admission.Handler
	delegate   *podsecurityadmission.Admission
	client     kubernetes.Interface
	namespaces corelisters.NamespaceLister
}

func newPodSecurity(config io.Reader) (admission.Interface, error) {
	configuration, err := podsecurityload.LoadFromReader(config)
	if err != nil {
		return nil, err
	}
	evaluator, err := podsecuritypolicy.NewEvaluator(podsecuritypolicy.DefaultChecks(), nil)
	if err != nil {
		return nil, fmt.Errorf("pod security checks: %w", err)
	}
	return &podSecurity{
		Handler: admission.NewHandler(admission.Create, admission.Update),
		delegate: &podsecurityadmission.Admission{
			Configuration:    configuration,
			Evaluator:        evaluator,
			Metrics:          unmeasured{},
			PodSpecExtractor: podsecurityadmission.DefaultPodSpecExtractor{},
		},
	}, nil
}

func (p *podSecurity) SetExternalKubeClientSet(client kubernetes.Interface) { p.client = client }

func (p *podSecurity) SetExternalKubeInformerFactory(f informers.SharedInformerFactory) {
	p.namespaces = f.Core().V1().Namespaces().Lister() // shared with NamespaceLifecycle
}

func (p *podSecurity) ValidateInitialization() error {
	if p.client == nil || p.namespaces == nil {
		return errors.New("no client or informers were set")
	}
	p.delegate.NamespaceGetter = podsecurityadmission.NamespaceGetterFromListerAndClient(p.namespaces,
		p.client)
	p.delegate.PodLister = podsecurityadmission.PodListerFromClient(p.client)
	if err := p.delegate.CompleteConfiguration(); err != nil {
		return err
	}
	return p.delegate.ValidateConfiguration()
}

// evaluated contains the resources that the plugin evaluates: namespaces, whose labels set the
// policy, pods, and resources with pod templates.
var evaluated = map[schema.GroupResource]bool{
	corev1.Resource("namespaces"): true,
	pods:                          true,
	corev1.Resource("replicationcontrollers"): true,
	corev1.Resource("podtemplates"):           true,
	appsv1.Resource("replicasets"):            true,
	appsv1.Resource("deployments"):            true,
	appsv1.Resource("statefulsets"):           true,
	appsv1.Resource("daemonsets"):             true,
	batchv1.Resource("jobs"):                  true,
	batchv1.Resource("cronjobs"):              true,
}

func (p *podSecurity) Validate(
	ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces,
) error {
	if !evaluated[a.GetResource().GroupResource()] {
		return nil
	}
	answer := p.delegate.Validate(ctx, &podsecurity.AttributesRecord{
		Name:        a.GetName(),
		Namespace:   a.GetNamespace(),
		Kind:        a.GetKind(),
		Resource:    a.GetResource(),
		Subresource: a.GetSubresource(),
		Operation:   admissionv1.Operation(a.GetOperation()),
		Object:      a.GetObject(),
		OldObject:   a.GetOldObject(),
		Username:    a.GetUserInfo().GetName(),
	})
	for _, w := range answer.Warnings {
		warning.AddWarning(ctx, "", w)
	}
	for key, value := range answer.AuditAnnotations {
		audit.AddAuditAnnotation(ctx, podsecurity.AuditAnnotationPrefix+key, value)
	}
	if answer.Allowed {
		return nil
	}
	if answer.Result == nil {
		return admission.NewForbidden(a, errors.New("pod security"))
	}
	return &apierrors.StatusError{ErrStatus: *answer.Result}
}

// unmeasured discards metrics, because several control planes in one process would share them.
type unmeasured struct{}

func (unmeasured) RecordEvaluation(
	metrics.Decision, podsecurity.LevelVersion, metrics.Mode, podsecurity.Attributes,
) {
}
func (unmeasured) RecordExemption(podsecurity.Attributes)   {}
func (unmeasured) RecordError(bool, podsecurity.Attributes) {}
