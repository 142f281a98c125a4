package legacy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	policyv1beta1 "k8s.io/api/policy/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/util/dryrun"
	typedpolicyv1 "k8s.io/client-go/kubernetes/typed/policy/v1"
	"k8s.io/client-go/util/retry"
	"k8s.io/component-helpers/apps/poddisruptionbudget"
)

const (
	// maxDisruptedPods is how many evicted pods a budget may record before the disruption
	// controller has observed their deletion.
	maxDisruptedPods = 2000
	// evictionRetryAfter is when a client should retry while the disruption controller catches up,
	// in seconds.
	evictionRetryAfter = 10

	overBudget = "Cannot evict pod as it would violate the pod's disruption budget."
)

// evictionConflicts returns the backoff for retries of an eviction when the pod or its budget
// changes concurrently.
func evictionConflicts() wait.Backoff {
	return wait.Backoff{Steps: 20, Duration: 500 * time.Millisecond, Factor: 1, Jitter: 0.1}
}

// registerEviction registers Eviction, the kind of pods/eviction, which belongs to the policy
// group.
func registerEviction(scheme *runtime.Scheme) error {
	if err := policyv1.AddToScheme(scheme); err != nil {
		return err
	}
	scheme.AddKnownTypes(schema.GroupVersion{
		Group:   policyv1.GroupName,
		Version: runtime.APIVersionInternal,
	}, &policyv1.Eviction{})
	// Evictions are still accepted in policy/v1beta1, although the rest of that version was
	// removed. The two versions have the same fields.
	scheme.AddKnownTypes(policyv1beta1.SchemeGroupVersion, &policyv1beta1.Eviction{})
	return errors.Join(
		scheme.AddConversionFunc((*policyv1beta1.Eviction)(nil), (*policyv1.Eviction)(nil),
			func(in, out any, _ conversion.Scope) error {
				*out.(*policyv1.Eviction) = policyv1.Eviction(*in.(*policyv1beta1.Eviction))
				return nil
			}),
		scheme.AddConversionFunc((*policyv1.Eviction)(nil), (*policyv1beta1.Eviction)(nil),
			func(in, out any, _ conversion.Scope) error {
				*out.(*policyv1beta1.Eviction) = policyv1beta1.Eviction(*in.(*policyv1.Eviction))
				return nil
			}),
	)
}

// evictionREST implements pods/eviction, which deletes a pod if its disruption budget allows it.
type evictionREST struct {
	pods *genericregistry.Store
	// budgets may be nil.
	budgets typedpolicyv1.PodDisruptionBudgetsGetter
}

func (r *evictionREST) New() runtime.Object { return &policyv1.Eviction{} }

// Destroy does nothing: the main resource owns the store.
func (r *evictionREST) Destroy() {}

// GroupVersionKind implements rest.GroupVersionKindProvider.
func (r *evictionREST) GroupVersionKind(schema.GroupVersion) schema.GroupVersionKind {
	return policyv1.SchemeGroupVersion.WithKind("Eviction")
}

// AcceptsGroupVersion implements rest.GroupVersionAcceptor.
func (r *evictionREST) AcceptsGroupVersion(gv schema.GroupVersion) bool {
	return gv == policyv1.SchemeGroupVersion || gv == policyv1beta1.SchemeGroupVersion
}

func (r *evictionREST) Create(
	ctx context.Context, name string, obj runtime.Object, validate rest.ValidateObjectFunc,
	options *metav1.CreateOptions,
) (runtime.Object, error) {
	eviction, ok := obj.(*policyv1.Eviction)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("not an Eviction object: %T", obj))
	}
	if eviction.Name != name {
		return nil, apierrors.NewBadRequest("name in URL does not match the name of the Eviction")
	}
	deletion, err := deletionOf(eviction, options)
	if err != nil {
		return nil, err
	}
	if validate != nil {
		if err := validate(ctx, eviction.DeepCopy()); err != nil {
			return nil, err
		}
	}

	var p *corev1.Pod
	deleted := false
	// Retry conflicts, unless the client itself demands a resource version.
	free := deletion.Preconditions == nil || deletion.Preconditions.ResourceVersion == nil
	again := func(err error) bool { return free && apierrors.IsConflict(err) }
	err = retry.OnError(evictionConflicts(), again, func() error {
		found, err := r.pods.Get(ctx, name, &metav1.GetOptions{})
		if err != nil {
			return err
		}
		p = found.(*corev1.Pod)
		if !isFinished(p) && p.Status.Phase != corev1.PodPending && p.DeletionTimestamp == nil {
			return nil
		}
		// Disruption budgets do not protect a pod that is pending, finished or being deleted.
		if err := r.delete(ctx, p, deletion, !isFinished(p) && p.DeletionTimestamp == nil); err != nil {
			return err
		}
		deleted = true
		return nil
	})
	if err != nil {
		return nil, err
	}
	if deleted {
		return &metav1.Status{Status: metav1.StatusSuccess}, nil
	}
	spared, err := r.askBudget(ctx, p, dryrun.IsDryRun(deletion.DryRun))
	if err != nil {
		return nil, err
	}
	err = r.delete(ctx, p, deletion, spared != "")
	if apierrors.IsConflict(err) && free && spared != "" {
		// The pod may have become healthy, so its budget must be checked again.
		return nil, tooManyDisruptions(evictionRetryAfter,
			fmt.Sprintf("the pod changed while its disruption budget %s was checked", spared))
	}
	if err != nil {
		return nil, err
	}
	return &metav1.Status{Status: metav1.StatusSuccess}, nil
}

// deletionOf returns the delete options of the eviction. The deletion is a dry run if the request
// is one.
func deletionOf(
	eviction *policyv1.Eviction, options *metav1.CreateOptions,
) (*metav1.DeleteOptions, error) {
	deletion := eviction.DeleteOptions.DeepCopy()
	switch {
	case deletion == nil:
		return &metav1.DeleteOptions{DryRun: options.DryRun}, nil
	case len(deletion.DryRun) == 0:
		deletion.DryRun = options.DryRun
	case len(options.DryRun) > 0 && !slices.Equal(options.DryRun, deletion.DryRun):
		return nil, fmt.Errorf("dryRun of the request (%v) and dryRun of deleteOptions (%v) do not match",
			options.DryRun, deletion.DryRun)
	}
	return deletion, nil
}

func storagePreconditions(p *metav1.Preconditions) *storage.Preconditions {
	if p == nil {
		return nil
	}
	return &storage.Preconditions{UID: p.UID, ResourceVersion: p.ResourceVersion}
}

// delete sets the DisruptionTarget condition of the pod and deletes the pod. If unchanged is true,
// the deletion fails if the pod has changed since it was read.
func (r *evictionREST) delete(
	ctx context.Context, p *corev1.Pod, deletion *metav1.DeleteOptions, unchanged bool,
) error {
	deletion = deletion.DeepCopy()
	if unchanged && (deletion.Preconditions == nil || deletion.Preconditions.ResourceVersion == nil) {
		if deletion.Preconditions == nil {
			deletion.Preconditions = &metav1.Preconditions{}
		}
		deletion.Preconditions.ResourceVersion = &p.ResourceVersion
	}
	if !dryrun.IsDryRun(deletion.DryRun) {
		var version string
		err := changePod(ctx, r.pods, p.Name, storagePreconditions(deletion.Preconditions), false,
			func(p *corev1.Pod) error {
				setPodCondition(&p.Status, corev1.PodCondition{
					Type:    corev1.DisruptionTarget,
					Status:  corev1.ConditionTrue,
					Reason:  "EvictionByEvictionAPI",
					Message: "Eviction API: evicting",
				})
				return nil
			})
		if err != nil {
			return err
		}
		if deletion.Preconditions != nil && deletion.Preconditions.ResourceVersion != nil {
			found, err := r.pods.Get(ctx, p.Name, &metav1.GetOptions{})
			if err != nil {
				return err
			}
			version = found.(*corev1.Pod).ResourceVersion
			deletion.Preconditions.ResourceVersion = &version
		}
	}
	_, _, err := r.pods.Delete(asking(ctx, deletion), p.Name, rest.ValidateAllObjectFunc, deletion)
	return err
}

// askBudget takes one disruption from the budget of the pod. If the pod is unhealthy and may be
// evicted without a disruption, askBudget takes none and returns the name of the budget. The caller
// must then delete the pod only if it has not changed.
func (r *evictionREST) askBudget(
	ctx context.Context, p *corev1.Pod, dryRun bool,
) (spared string, err error) {
	budgets, err := r.budgetsOf(ctx, p)
	switch {
	case err != nil:
		return "", err
	case len(budgets) == 0:
		return "", nil
	case len(budgets) > 1:
		return "", &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure,
			Message: "the pod has several disruption budgets, but the eviction subresource supports " +
				"only one",
			Code: 500,
		}}
	}
	b := &budgets[0]
	if !isPodReady(p) {
		if policy := b.Spec.UnhealthyPodEvictionPolicy; policy != nil && *policy == policyv1.AlwaysAllow {
			return b.Name, nil
		}
		if b.Status.CurrentHealthy >= b.Status.DesiredHealthy && b.Status.DesiredHealthy > 0 {
			return b.Name, nil
		}
	}
	again := false
	err = retry.OnError(evictionConflicts(), apierrors.IsConflict, func() error {
		if again {
			var err error
			if b, err = r.budgets.PodDisruptionBudgets(b.Namespace).Get(ctx, b.Name,
				metav1.GetOptions{}); err != nil {
				return err
			}
		}
		again = true
		return r.take(ctx, b, p.Name, dryRun)
	})
	if apierrors.IsConflict(err) || errors.Is(err, context.DeadlineExceeded) {
		return "", tooManyDisruptions(evictionRetryAfter,
			fmt.Sprintf("the disruption budget %s changes too often; retry later", b.Name))
	}
	return "", err
}

func (r *evictionREST) budgetsOf(
	ctx context.Context, p *corev1.Pod,
) ([]policyv1.PodDisruptionBudget, error) {
	if r.budgets == nil {
		return nil, nil
	}
	all, err := r.budgets.PodDisruptionBudgets(p.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var budgets []policyv1.PodDisruptionBudget
	for _, b := range all.Items {
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err == nil && selector.Matches(labels.Set(p.Labels)) {
			budgets = append(budgets, b)
		}
	}
	return budgets, nil
}

// take records a disruption in the status of the budget until the disruption controller observes
// the deletion of the pod.
func (r *evictionREST) take(
	ctx context.Context, b *policyv1.PodDisruptionBudget, name string, dryRun bool,
) error {
	resource := policyv1.Resource("poddisruptionbudget")
	s := &b.Status
	switch {
	case s.ObservedGeneration < b.Generation:
		return tooManyDisruptions(evictionRetryAfter,
			fmt.Sprintf("the disruption budget %s has changed and has not been processed yet", b.Name))
	case s.DisruptionsAllowed < 0:
		return apierrors.NewForbidden(resource, b.Name,
			errors.New("status.disruptionsAllowed is negative"))
	case len(s.DisruptedPods) > maxDisruptedPods:
		return apierrors.NewForbidden(resource, b.Name,
			errors.New("too many evictions have not been confirmed by the disruption controller"))
	case s.DisruptionsAllowed == 0:
		return tooManyDisruptions(0,
			fmt.Sprintf("The disruption budget %s needs %d healthy pods and has %d currently",
				b.Name, s.DesiredHealthy, s.CurrentHealthy))
	}
	s.DisruptionsAllowed--
	if s.DisruptionsAllowed == 0 {
		poddisruptionbudget.UpdateDisruptionAllowedCondition(b)
	}
	if dryRun {
		return nil
	}
	if s.DisruptedPods == nil {
		s.DisruptedPods = map[string]metav1.Time{}
	}
	s.DisruptedPods[name] = metav1.Now()
	_, err := r.budgets.PodDisruptionBudgets(b.Namespace).UpdateStatus(ctx, b, metav1.UpdateOptions{})
	return err
}

func tooManyDisruptions(retryAfter int, message string) error {
	err := apierrors.NewTooManyRequests(overBudget, retryAfter)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{
		{Type: policyv1.DisruptionBudgetCause, Message: message},
	}
	return err
}
