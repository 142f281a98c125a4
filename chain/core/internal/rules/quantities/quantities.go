package quantities

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/core/internal/rules"
)

// standardResources are the resources whose names have no prefix.
var standardResources = sets.New(
	corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage,
	corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory, corev1.ResourceRequestsEphemeralStorage,
	corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory, corev1.ResourceLimitsEphemeralStorage,
	corev1.ResourcePods, corev1.ResourceQuotas, corev1.ResourceServices,
	corev1.ResourceReplicationControllers, corev1.ResourceSecrets, corev1.ResourceConfigMaps,
	corev1.ResourcePersistentVolumeClaims, corev1.ResourceStorage, corev1.ResourceRequestsStorage,
	corev1.ResourceServicesNodePorts, corev1.ResourceServicesLoadBalancers,
)

// standardContainerResources are the resources without a prefix that a container may request.
var standardContainerResources = sets.New(corev1.ResourceCPU, corev1.ResourceMemory,
	corev1.ResourceEphemeralStorage)

// integerResources are the standard resources that are counted in whole numbers.
var integerResources = sets.New(
	corev1.ResourcePods, corev1.ResourceQuotas,
	corev1.ResourceServices, corev1.ResourceReplicationControllers, corev1.ResourceSecrets,
	corev1.ResourceConfigMaps, corev1.ResourcePersistentVolumeClaims, corev1.ResourceServicesNodePorts,
	corev1.ResourceServicesLoadBalancers,
)

const requestsPrefix = "requests."

// RoundUp rounds quantities up to thousandths, the smallest amount that is stored.
func RoundUp(lists ...corev1.ResourceList) {
	for _, list := range lists {
		for name, quantity := range list {
			quantity.RoundUp(resource.Milli)
			list[name] = quantity
		}
	}
}

// ValidateNonnegativeQuantity rejects negative quantities.
func ValidateNonnegativeQuantity(q resource.Quantity, path *field.Path) field.ErrorList {
	if q.Sign() < 0 {
		return field.ErrorList{field.Invalid(path, q.String(), "must be greater than or equal to 0")}
	}
	return nil
}

// ValidatePositiveQuantity rejects quantities that are zero or negative.
func ValidatePositiveQuantity(q resource.Quantity, path *field.Path) field.ErrorList {
	if q.Sign() <= 0 {
		return field.ErrorList{field.Invalid(path, q.String(), "must be greater than zero")}
	}
	return nil
}

// ValidateResourceQuantity validates a quantity of a resource. It must not be negative, and must be
// a whole number if [IsIntegerResource] is true.
func ValidateResourceQuantity(
	name corev1.ResourceName, q resource.Quantity, path *field.Path,
) field.ErrorList {
	errs := ValidateNonnegativeQuantity(q, path)
	if IsIntegerResource(name) && q.MilliValue()%1000 != 0 {
		errs = append(errs, field.Invalid(path, q.String(), "must be an integer"))
	}
	return errs
}

// IsIntegerResource reports whether quantities of the resource must be whole numbers.
func IsIntegerResource(name corev1.ResourceName) bool {
	return integerResources.Has(name) || IsExtendedResource(name)
}

// IsNativeResource reports whether the name has no prefix or a kubernetes.io prefix.
func IsNativeResource(name corev1.ResourceName) bool {
	return !strings.Contains(string(name), "/") ||
		strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
}

// IsExtendedResource reports whether the name is that of an extended resource, which nodes
// advertise and Kubernetes does not interpret.
func IsExtendedResource(name corev1.ResourceName) bool {
	if IsNativeResource(name) || strings.HasPrefix(string(name), requestsPrefix) {
		return false
	}
	// The name of its quota must be valid too.
	return len(validation.IsQualifiedName(requestsPrefix+string(name))) == 0
}

// IsHugePages reports whether the resource is huge pages of any size.
func IsHugePages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// IsStandardContainerResource reports whether a container may request the resource and its name has
// no prefix.
func IsStandardContainerResource(name corev1.ResourceName) bool {
	return standardContainerResources.Has(name) || IsHugePages(name)
}

// IsStandardResource reports whether the resource is a standard one, whose name has no prefix.
func IsStandardResource(name corev1.ResourceName) bool {
	return standardResources.Has(name) || IsQuotaHugePages(name)
}

// IsStandardQuotaResource reports whether a quota may limit the resource and its name has no
// prefix.
func IsStandardQuotaResource(name corev1.ResourceName) bool {
	return IsStandardResource(name) && name != corev1.ResourceStorage
}

// IsQuotaHugePages reports whether the resource is huge pages of any size, or requests for huge
// pages.
func IsQuotaHugePages(name corev1.ResourceName) bool {
	return IsHugePages(name) || strings.HasPrefix(string(name), corev1.ResourceRequestsHugePagesPrefix)
}

// ValidateResourceName validates a resource name. A name without a prefix must be a standard
// resource.
func ValidateResourceName(name corev1.ResourceName, path *field.Path) field.ErrorList {
	errs := validateQualified(name, path)
	if len(errs) == 0 && !strings.Contains(string(name), "/") && !IsStandardResource(name) {
		errs = append(errs, field.Invalid(path, name,
			"must be a standard resource type or fully qualified"))
	}
	return errs
}

// ValidateContainerResourceName validates the name of a resource that a container requests.
func ValidateContainerResourceName(name corev1.ResourceName, path *field.Path) field.ErrorList {
	errs := ValidateResourceName(name, path)
	switch {
	case !strings.Contains(string(name), "/"):
		if !IsStandardContainerResource(name) {
			errs = append(errs, field.Invalid(path, name, "must be a standard resource for containers"))
		}
	case !IsNativeResource(name) && !IsExtendedResource(name):
		errs = append(errs, field.Invalid(path, name, "must be a valid extended resource name"))
	}
	return errs
}

func validateQualified(name corev1.ResourceName, path *field.Path) field.ErrorList {
	return rules.Invalid(path, name, validation.IsQualifiedName(string(name)))
}
