package legacy

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/core/internal/rules"
)

var resourceHealths = []corev1.ResourceHealthStatus{
	corev1.ResourceHealthStatusHealthy, corev1.ResourceHealthStatusUnhealthy,
	corev1.ResourceHealthStatusUnknown,
}

// validateAllocated validates what kubelets report about the health of the devices of containers
// (KEP-4680).
func validateAllocated(
	p *corev1.Pod, statuses []corev1.ContainerStatus, containers []corev1.Container, path *field.Path,
) field.ErrorList {
	var errs field.ErrorList
	byName := containersByName(containers)
	for i, s := range statuses {
		container := byName[s.Name]
		for j, allocated := range s.AllocatedResourcesStatus {
			at := path.Index(i).Child("allocatedResourcesStatus").Index(j)
			if container != nil && !hasResource(p, container, allocated.Name) {
				errs = append(errs, field.Invalid(at.Child("name"), allocated.Name, "must be a resource that "+
					"the container requests or, with the prefix claim:, one of its claims"))
			}
			errs = append(errs, validateHealths(allocated.Resources, at.Child("resources"))...)
		}
	}
	return errs
}

// hasResource reports whether the container uses the named resource. The resources of a claim are
// named claim:name or claim:name/request. Claims for extended resources are listed in the status of
// the pod.
func hasResource(p *corev1.Pod, c *corev1.Container, name corev1.ResourceName) bool {
	claimed, ok := strings.CutPrefix(string(name), "claim:")
	if !ok {
		_, requested := c.Resources.Requests[name]
		return requested
	}
	if s := p.Status.ExtendedResourceClaimStatus; s != nil &&
		slices.ContainsFunc(s.RequestMappings, func(m corev1.ContainerExtendedResourceRequest) bool {
			return m.ContainerName == c.Name && claimed == s.ResourceClaimName+"/"+m.RequestName
		}) {
		return true
	}
	return slices.ContainsFunc(c.Resources.Claims, func(claim corev1.ResourceClaim) bool {
		if claim.Request != "" {
			return claimed == claim.Name+"/"+claim.Request
		}
		return claimed == claim.Name
	})
}

func validateHealths(list []corev1.ResourceHealth, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := sets.Set[corev1.ResourceID]{}
	for i, r := range list {
		at := path.Index(i)
		if !slices.Contains(resourceHealths, r.Health) {
			errs = append(errs, field.NotSupported(at.Child("health"), r.Health, resourceHealths))
		}
		if r.Message != nil && *r.Message == "" {
			errs = append(errs, field.Required(at.Child("message"),
				"must not be empty; omit it if there is no message"))
		}
		if r.Message != nil && len(*r.Message) > corev1.ResourceHealthMessageMaxLength {
			errs = append(errs, field.TooLong(at.Child("message"), *r.Message,
				corev1.ResourceHealthMessageMaxLength))
		}
		if seen.Has(r.ResourceID) {
			errs = append(errs, field.Duplicate(at.Child("resourceID"), r.ResourceID))
		}
		seen.Insert(r.ResourceID)
	}
	return errs
}

// validateExtendedClaim validates the claim that the scheduler created for extended resources
// backed by devices (KEP-5004).
func validateExtendedClaim(p *corev1.Pod, path *field.Path) field.ErrorList {
	status := p.Status.ExtendedResourceClaimStatus
	if status == nil {
		return nil
	}
	var errs field.ErrorList
	requests := map[string]corev1.ResourceList{}
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		requests[c.Name] = c.Resources.Requests
	}
	if len(status.RequestMappings) == 0 {
		errs = append(errs, field.Required(path.Child("requestMappings"),
			"must have at least one request mapping"))
	}
	seen := sets.Set[corev1.ContainerExtendedResourceRequest]{}
	for i, mapping := range status.RequestMappings {
		at := path.Child("requestMappings").Index(i)
		if list, ok := requests[mapping.ContainerName]; !ok {
			errs = append(errs, field.Invalid(at.Child("containerName"), mapping.ContainerName,
				"the pod has no such container"))
		} else if _, ok := list[corev1.ResourceName(mapping.ResourceName)]; !ok {
			errs = append(errs, field.Invalid(at.Child("resourceName"), mapping.ResourceName,
				"the container does not request this resource"))
		}
		// As in kube-apiserver, the path has no index.
		errs = append(errs, rules.Invalid(path.Child("requestName"), mapping.RequestName,
			validation.IsDNS1123Label(mapping.RequestName))...)
		if seen.Has(mapping) {
			errs = append(errs, field.Duplicate(at.Child("containerName"), mapping.ContainerName),
				field.Duplicate(at.Child("resourceName"), mapping.ResourceName),
				field.Duplicate(at.Child("requestName"), mapping.RequestName))
		}
		seen.Insert(mapping)
	}
	if status.ResourceClaimName == "" {
		return append(errs, field.Required(path.Child("resourceClaimName"), ""))
	}
	return append(errs, invalidName(path.Child("resourceClaimName"), status.ResourceClaimName)...)
}
