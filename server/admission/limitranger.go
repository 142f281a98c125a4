package admission

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/component-helpers/resource"
)

// limitRanger (LimitRanger) gives containers the default requests and limits of the namespace's limit ranges, and holds pods,
// containers and claims to their bounds.
type limitRanger struct {
	*admission.Handler
	reader
}

// limitsAnnotation tells people which values are not the pod's own.
const limitsAnnotation = "kubernetes.io/limit-ranger"

func newLimitRanger() admission.Interface {
	return &limitRanger{Handler: on(admission.Create, admission.Update)}
}

func (p *limitRanger) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	pod, ok, err := objectOf[*corev1.Pod](a, pods)
	if !ok || a.GetOperation() != admission.Create {
		return err
	}
	ranges, err := p.ranges(ctx, a)
	if err != nil {
		return err
	}
	var set []string
	for _, r := range ranges {
		set = append(set, setDefaults(pod, r.Spec.Limits)...)
	}
	if len(set) > 0 {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, limitsAnnotation, "set by limit ranges: "+strings.Join(set, "; "))
	}
	return nil
}

func (p *limitRanger) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	var check func(corev1.LimitRangeItem) []error
	switch {
	case is(a, pods, "") && a.GetOperation() == admission.Create, is(a, pods, "resize") && a.GetOperation() == admission.Update:
		pod, err := cast[*corev1.Pod](a.GetObject())
		if err != nil {
			return err
		}
		check = func(item corev1.LimitRangeItem) []error { return checkPod(pod, item) }
	case is(a, persistentVolumeClaims, ""):
		claim, err := cast[*corev1.PersistentVolumeClaim](a.GetObject())
		if err != nil {
			return err
		}
		check = func(item corev1.LimitRangeItem) []error { return checkClaim(claim, item) }
	default:
		return nil
	}
	ranges, err := p.ranges(ctx, a)
	if err != nil {
		return err
	}
	var errs []error
	for _, r := range ranges {
		for _, item := range r.Spec.Limits {
			errs = append(errs, check(item)...)
		}
	}
	if len(errs) > 0 {
		return admission.NewForbidden(a, utilerrors.NewAggregate(errs))
	}
	return nil
}

func (p *limitRanger) ranges(ctx context.Context, a admission.Attributes) ([]corev1.LimitRange, error) {
	list, err := p.client.CoreV1().LimitRanges(a.GetNamespace()).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, admission.NewForbidden(a, fmt.Errorf("limit ranges: %w", err))
	}
	live := list.Items[:0]
	for _, r := range list.Items {
		if r.DeletionTimestamp == nil {
			live = append(live, r)
		}
	}
	return live, nil
}

// setDefaults fills in what containers lack, and says in words what that was.
func setDefaults(pod *corev1.Pod, items []corev1.LimitRangeItem) (set []string) {
	requests, limits := corev1.ResourceList{}, corev1.ResourceList{}
	for _, item := range items {
		if item.Type != corev1.LimitTypeContainer {
			continue
		}
		for name, q := range item.DefaultRequest {
			requests[name] = q
		}
		for name, q := range item.Default {
			limits[name] = q
		}
	}
	containers(&pod.Spec, func(c *corev1.Container) {
		for _, what := range []struct {
			name     string
			list     *corev1.ResourceList
			defaults corev1.ResourceList
		}{{"requests", &c.Resources.Requests, requests}, {"limits", &c.Resources.Limits, limits}} {
			added := sets.New[string]()
			for name, q := range what.defaults {
				if _, ok := (*what.list)[name]; ok {
					continue
				}
				if *what.list == nil {
					*what.list = corev1.ResourceList{}
				}
				(*what.list)[name] = q.DeepCopy()
				added.Insert(string(name))
			}
			if len(added) > 0 {
				set = append(set, fmt.Sprintf("%s of container %s (%s)", what.name, c.Name, strings.Join(sets.List(added), ", ")))
			}
		}
	})
	return set
}

func checkPod(pod *corev1.Pod, item corev1.LimitRangeItem) (errs []error) {
	switch item.Type {
	case corev1.LimitTypeContainer:
		containers(&pod.Spec, func(c *corev1.Container) {
			for _, err := range bounds(item, c.Resources.Requests, c.Resources.Limits) {
				errs = append(errs, fmt.Errorf("container %s: %w", c.Name, err))
			}
		})
	case corev1.LimitTypePod:
		errs = bounds(item, resource.PodRequests(pod, resource.PodResourcesOptions{}), resource.PodLimits(pod, resource.PodResourcesOptions{}))
	}
	return errs
}

func checkClaim(claim *corev1.PersistentVolumeClaim, item corev1.LimitRangeItem) (errs []error) {
	if item.Type != corev1.LimitTypePersistentVolumeClaim {
		return nil
	}
	requests := claim.Spec.Resources.Requests
	for name, least := range item.Min {
		if q, ok := requests[name]; !ok || q.Cmp(least) < 0 {
			errs = append(errs, fmt.Errorf("the request of %s must be at least %s", name, least.String()))
		}
	}
	for name, most := range item.Max {
		if q, ok := requests[name]; !ok || q.Cmp(most) > 0 {
			errs = append(errs, fmt.Errorf("the request of %s must be given and at most %s", name, most.String()))
		}
	}
	return errs
}

// bounds compares requests and limits with the item's.
func bounds(item corev1.LimitRangeItem, requests, limits corev1.ResourceList) (errs []error) {
	for name, least := range item.Min {
		request, requested := requests[name]
		limit, limited := limits[name]
		if !requested || request.Cmp(least) < 0 || limited && limit.Cmp(least) < 0 {
			errs = append(errs, fmt.Errorf("%s must be requested, and request and limit be at least %s per %s", name, least.String(), item.Type))
		}
	}
	for name, most := range item.Max {
		request, requested := requests[name]
		limit, limited := limits[name]
		if !limited || limit.Cmp(most) > 0 || requested && request.Cmp(most) > 0 {
			errs = append(errs, fmt.Errorf("%s must be limited, and request and limit be at most %s per %s", name, most.String(), item.Type))
		}
	}
	for name, ratio := range item.MaxLimitRequestRatio {
		if err := checkRatio(requests, limits, name, ratio.AsApproximateFloat64()); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

func checkRatio(requests, limits corev1.ResourceList, name corev1.ResourceName, most float64) error {
	request, limit := requests[name], limits[name]
	if request.IsZero() || limit.IsZero() {
		return errors.New(string(name) + " must have a request and a limit, for their ratio is limited")
	}
	if ratio := limit.AsApproximateFloat64() / request.AsApproximateFloat64(); ratio > most {
		return fmt.Errorf("the limit of %s is %.6g times its request, but at most %.6g times is allowed", name, ratio, most)
	}
	return nil
}
