package admission

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/component-helpers/resource"

	"github.com/kinproc/kinproc/server/internal/admission/plugin"
)

// limitRanger (LimitRanger) sets the default requests and limits of the namespace's limit ranges in
// containers, and enforces their bounds on pods, containers and claims.
type limitRanger struct {
	*admission.Handler
	plugin.WantsClient
	plugin.Lists[corev1.LimitRange]
}

// limitsAnnotation tells users which values the plugin has set.
const limitsAnnotation = "kubernetes.io/limit-ranger"

func newLimitRanger() admission.Interface {
	return &limitRanger{Handler: admission.NewHandler(admission.Create, admission.Update)}
}

func (p *limitRanger) Admit(
	ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces,
) error {
	if !limitsPod(a) || isLeaving(a) {
		return nil
	}
	pod, err := plugin.Cast[*corev1.Pod](a.GetObject())
	if err != nil {
		return err
	}
	ranges, err := p.ranges(ctx, a)
	if err != nil {
		return err
	}
	for _, r := range ranges {
		if set := setDefaults(pod, r.Spec.Limits); len(set) > 0 {
			metav1.SetMetaDataAnnotation(&pod.ObjectMeta, limitsAnnotation,
				"LimitRanger plugin set: "+strings.Join(set, "; "))
		}
	}
	return nil
}

// limitsPod reports whether a request sets the resources of a pod.
func limitsPod(a admission.Attributes) bool {
	return plugin.Is(a, pods, "") && a.GetOperation() == admission.Create ||
		plugin.Is(a, pods, "resize") && a.GetOperation() == admission.Update
}

// isLeaving reports whether the object is being deleted. It must be possible to remove its
// finalizers whatever the current limits are.
func isLeaving(a admission.Attributes) bool {
	old, ok := a.GetOldObject().(metav1.Object)
	return ok && old.GetDeletionTimestamp() != nil
}

func (p *limitRanger) Validate(
	ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces,
) error {
	var check func(corev1.LimitRangeItem) []error
	switch {
	case isLeaving(a):
		return nil
	case limitsPod(a):
		pod, err := plugin.Cast[*corev1.Pod](a.GetObject())
		if err != nil {
			return err
		}
		check = func(item corev1.LimitRangeItem) []error { return checkPod(pod, item) }
	case plugin.Is(a, persistentVolumeClaims, ""):
		claim, err := plugin.Cast[*corev1.PersistentVolumeClaim](a.GetObject())
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

func (p *limitRanger) ranges(
	ctx context.Context, a admission.Attributes,
) ([]corev1.LimitRange, error) {
	ranges, err := p.List(ctx, "limitranges/"+a.GetNamespace(), func() ([]corev1.LimitRange, error) {
		list, err := p.Client.CoreV1().LimitRanges(a.GetNamespace()).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		return list.Items, nil
	})
	if err != nil {
		return nil, admission.NewForbidden(a, fmt.Errorf("limit ranges: %w", err))
	}
	return ranges, nil
}

// setDefaults fills in missing requests and limits of containers and returns a description of them
// in kube-apiserver's format.
func setDefaults(pod *corev1.Pod, items []corev1.LimitRangeItem) (set []string) {
	requests, limits := corev1.ResourceList{}, corev1.ResourceList{}
	for _, item := range items {
		if item.Type == corev1.LimitTypeContainer {
			maps.Copy(requests, item.DefaultRequest)
			maps.Copy(limits, item.Default)
		}
	}
	fill := func(what, container string, list *corev1.ResourceList, defaults corev1.ResourceList) {
		added := sets.New[string]()
		for name, q := range defaults {
			if _, ok := (*list)[name]; ok {
				continue
			}
			if *list == nil {
				*list = corev1.ResourceList{}
			}
			(*list)[name] = q.DeepCopy()
			added.Insert(string(name))
		}
		if len(added) > 0 {
			set = append(set, fmt.Sprintf("%s %s for %s",
				strings.Join(sets.List(added), ", "), what, container))
		}
	}
	for _, group := range []struct {
		containers []corev1.Container
		kind       string
	}{{pod.Spec.Containers, "container "}, {pod.Spec.InitContainers, "init container "}} {
		for i := range group.containers {
			c := &group.containers[i]
			fill("request", group.kind+c.Name, &c.Resources.Requests, requests)
			fill("limit", group.kind+c.Name, &c.Resources.Limits, limits)
		}
	}
	return set
}

func checkPod(pod *corev1.Pod, item corev1.LimitRangeItem) (errs []error) {
	switch item.Type {
	case corev1.LimitTypeContainer:
		plugin.Containers(&pod.Spec, func(c *corev1.Container) {
			for _, err := range bounds(item, c.Resources.Requests, c.Resources.Limits) {
				errs = append(errs, fmt.Errorf("container %s: %w", c.Name, err))
			}
		})
	case corev1.LimitTypePod:
		// the limits do not apply to the overhead of the runtime class
		own := resource.PodResourcesOptions{ExcludeOverhead: true}
		errs = bounds(item, resource.PodRequests(pod, own), resource.PodLimits(pod, own))
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
			errs = append(errs, fmt.Errorf("the %s request must be at least %s", name, least.String()))
		}
	}
	for name, most := range item.Max {
		if q, ok := requests[name]; !ok || q.Cmp(most) > 0 {
			errs = append(errs, fmt.Errorf("a %s request is required and must be at most %s",
				name, most.String()))
		}
	}
	return errs
}

// bounds checks requests and limits against the minimum, maximum and ratio of item.
func bounds(item corev1.LimitRangeItem, requests, limits corev1.ResourceList) (errs []error) {
	for name, least := range item.Min {
		request, requested := requests[name]
		limit, limited := limits[name]
		if !requested || request.Cmp(least) < 0 || limited && limit.Cmp(least) < 0 {
			errs = append(errs,
				fmt.Errorf("%s must have a request, and its request and limit must be at least %s per %s",
					name, least.String(), item.Type))
		}
	}
	for name, most := range item.Max {
		request, requested := requests[name]
		limit, limited := limits[name]
		if !limited || limit.Cmp(most) > 0 || requested && request.Cmp(most) > 0 {
			errs = append(errs,
				fmt.Errorf("%s must have a limit, and its request and limit must be at most %s per %s",
					name, most.String(), item.Type))
		}
	}
	for name, ratio := range item.MaxLimitRequestRatio {
		if err := checkRatio(requests[name], limits[name], ratio); err != nil {
			errs = append(errs, fmt.Errorf("%s per %s: %w", name, item.Type, err))
		}
	}
	return errs
}

func checkRatio(request, limit, most apiresource.Quantity) error {
	if request.IsZero() || limit.IsZero() {
		return errors.New("a request and a limit are required because their ratio is limited")
	}
	// Compare in thousandths, so that 900m is exactly three times 300m, unless the values are too
	// large for that.
	from, to := request.MilliValue(), limit.MilliValue()
	if request.Value() > apiresource.MaxMilliValue || limit.Value() > apiresource.MaxMilliValue {
		from, to = request.Value(), limit.Value()
	}
	if ratio := float64(to) / float64(from); ratio*1000 > float64(most.MilliValue()) {
		return fmt.Errorf("the limit is %.6g times the request, but may be at most %s times the request",
			ratio, most.String())
	}
	return nil
}
