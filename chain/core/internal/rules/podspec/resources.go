package podspec

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/kinproc/kinproc/chain/core/internal/rules"
	"github.com/kinproc/kinproc/chain/core/internal/rules/quantities"
)

// ValidateResources validates the limits and requests of a container. claims holds the names of the
// pod's resource claims.
func ValidateResources(
	r *corev1.ResourceRequirements, claims sets.Set[string], path *field.Path, opts Options,
) field.ErrorList {
	return validateRequirements(r, quantities.ValidateContainerResourceName, claims, path, opts)
}

type nameRule func(name corev1.ResourceName, path *field.Path) field.ErrorList

func validateRequirements(
	r *corev1.ResourceRequirements, validateName nameRule, claims sets.Set[string], path *field.Path,
	opts Options,
) field.ErrorList {
	var errs field.ErrorList
	limits, requests := path.Child("limits"), path.Child("requests")
	errs = append(errs, validateQuantities(r.Limits, validateName, limits, opts)...)
	errs = append(errs, validateQuantities(r.Requests, validateName, requests, opts)...)
	for name, request := range r.Requests {
		limit, limited := r.Limits[name]
		switch {
		case limited && isFixed(name) && request.Cmp(limit) != 0:
			errs = append(errs, field.Invalid(requests, request.String(),
				fmt.Sprintf("%s cannot be overcommitted: must be equal to the limit %s", name, limit.String())))
		case limited && request.Cmp(limit) > 0:
			errs = append(errs, field.Invalid(requests, request.String(),
				fmt.Sprintf("must be less than or equal to %s limit of %s", name, limit.String())))
		case !limited && isFixed(name):
			errs = append(errs, field.Required(limits,
				fmt.Sprintf("%s cannot be overcommitted: must be set when a request is set", name)))
		}
	}
	hugePages, computing := false, false
	for _, list := range []corev1.ResourceList{r.Limits, r.Requests} {
		for name := range list {
			hugePages = hugePages || quantities.IsHugePages(name)
			computing = computing || name == corev1.ResourceCPU || name == corev1.ResourceMemory
		}
	}
	if hugePages && !computing {
		errs = append(errs, field.Forbidden(path, "HugePages require cpu or memory"))
	}
	return append(errs, validateClaimUses(r.Claims, claims, path.Child("claims"))...)
}

func validateQuantities(
	list corev1.ResourceList, validateName nameRule, path *field.Path, opts Options,
) field.ErrorList {
	var errs field.ErrorList
	for name, quantity := range list {
		at := path.Key(string(name))
		errs = append(errs, validateName(name, at)...)
		errs = append(errs, quantities.ValidateResourceQuantity(name, quantity, at)...)
		if quantities.IsHugePages(name) && !opts.partHugePages && !isWholeHugePages(name, quantity) {
			errs = append(errs, field.Invalid(at, quantity.String(), "must be a multiple of the page size"))
		}
	}
	return errs
}

func validatePodResourceName(name corev1.ResourceName, path *field.Path) field.ErrorList {
	errs := quantities.ValidateResourceName(name, path)
	if len(errs) == 0 && !resourcehelper.IsSupportedPodLevelResource(name) {
		errs = append(errs, field.NotSupported(path, name,
			sets.List(resourcehelper.SupportedPodLevelResources())))
	}
	return errs
}

func validateClaimUses(
	uses []corev1.ResourceClaim, claims sets.Set[string], path *field.Path,
) field.ErrorList {
	var errs field.ErrorList
	whole, parts := sets.Set[string]{}, sets.Set[corev1.ResourceClaim]{}
	inPart := sets.Set[string]{}
	for i, use := range uses {
		at := path.Index(i)
		if use.Name == "" {
			errs = append(errs, field.Required(at, "must specify the name of the claim"))
			continue
		}
		twice := whole.Has(use.Name) || parts.Has(use) || use.Request == "" && inPart.Has(use.Name)
		if twice {
			errs = append(errs, field.Duplicate(at, use.Name))
		}
		if use.Request == "" {
			whole.Insert(use.Name)
		} else {
			if !whole.Has(use.Name) {
				errs = append(errs, rules.Invalid(at.Child("request"), use.Request,
					validation.IsDNS1123Label(use.Request))...)
			}
			parts.Insert(use)
			inPart.Insert(use.Name)
		}
		if !claims.Has(use.Name) {
			errs = append(errs, field.NotFound(at, use.Name))
		}
	}
	return errs
}

// validatePodResources validates the pod-level resources, which the containers share.
func (v *validator) validatePodResources(path *field.Path) field.ErrorList {
	r := v.spec.Resources
	if r == nil {
		return nil
	}
	if v.isWindows() {
		return field.ErrorList{field.Forbidden(path, "may not be set for a windows pod")}
	}
	var errs field.ErrorList
	if r.Claims != nil {
		errs = append(errs, field.Forbidden(path.Child("claims"),
			"may not be set for pod-level resources"))
	}
	errs = append(errs, validateRequirements(r, validatePodResourceName, v.claims, path, v.opts)...)

	pod := &corev1.Pod{Spec: *v.spec}
	for name, sum := range resourcehelper.AggregateContainerRequests(pod,
		resourcehelper.PodResourcesOptions{}) {
		if request, ok := r.Requests[name]; ok && sum.Cmp(request) > 0 {
			errs = append(errs, field.Invalid(path.Child("requests").Key(string(name)), request.String(),
				fmt.Sprintf("must be greater than or equal to the aggregate container requests of %s",
					sum.String())))
		}
	}
	for name, sum := range resourcehelper.AggregateContainerLimits(pod,
		resourcehelper.PodResourcesOptions{}) {
		if limit, ok := r.Limits[name]; ok && quantities.IsHugePages(name) && sum.Cmp(limit) > 0 {
			errs = append(errs, field.Invalid(path.Child("limits").Key(string(name)), limit.String(),
				fmt.Sprintf("must be greater than or equal to the aggregate container limits of %s",
					sum.String())))
		}
	}
	for i := range v.spec.Containers {
		for name, limit := range v.spec.Containers[i].Resources.Limits {
			if whole, ok := r.Limits[name]; ok && limit.Cmp(whole) > 0 {
				at := path.Child("containers").Index(i).Key(string(name)).Child("limits")
				errs = append(errs, field.Invalid(at, limit.String(),
					fmt.Sprintf("must be less than or equal to the pod's limit %s", whole.String())))
			}
		}
	}
	return errs
}

func (v *validator) validateResourceClaims(path *field.Path) field.ErrorList {
	if v.meta != nil && len(v.spec.ResourceClaims) > 0 {
		if _, mirror := v.meta.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
			return field.ErrorList{
				field.Forbidden(field.NewPath(""), "static pods do not support resource claims"),
			}
		}
	}
	var errs field.ErrorList
	names := sets.Set[string]{}
	for i, claim := range v.spec.ResourceClaims {
		at := path.Index(i)
		switch {
		case claim.Name == "":
			errs = append(errs, field.Required(at.Child("name"), ""))
		case names.Has(claim.Name):
			errs = append(errs, field.Duplicate(at.Child("name"), claim.Name))
		default:
			errs = append(errs, rules.Invalid(at.Child("name"), claim.Name,
				validation.IsDNS1123Label(claim.Name))...)
			names.Insert(claim.Name)
		}
		switch {
		case claim.ResourceClaimName != nil && claim.ResourceClaimTemplateName != nil:
			errs = append(errs, field.Invalid(at, claim,
				"may not specify both resourceClaimName and resourceClaimTemplateName"))
		case claim.ResourceClaimName == nil && claim.ResourceClaimTemplateName == nil:
			errs = append(errs, field.Invalid(at, claim,
				"must specify either resourceClaimName or resourceClaimTemplateName"))
		}
		if claim.ResourceClaimName != nil {
			errs = append(errs, rules.Invalid(at.Child("resourceClaimName"), *claim.ResourceClaimName,
				validation.IsDNS1123Subdomain(*claim.ResourceClaimName))...)
		}
		if claim.ResourceClaimTemplateName != nil {
			name := *claim.ResourceClaimTemplateName
			errs = append(errs, rules.Invalid(at.Child("resourceClaimTemplateName"), name,
				validation.IsDNS1123Subdomain(name))...)
		}
	}
	return errs
}

// isFixed reports whether the resource cannot be overcommitted.
func isFixed(name corev1.ResourceName) bool {
	return !quantities.IsNativeResource(name) || quantities.IsHugePages(name)
}
