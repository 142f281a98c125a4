package quantities

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// standardResources are the names without a prefix.
var standardResources = sets.New(
	corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage,
	corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory, corev1.ResourceRequestsEphemeralStorage,
	corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory, corev1.ResourceLimitsEphemeralStorage,
	corev1.ResourcePods, corev1.ResourceQuotas, corev1.ResourceServices, corev1.ResourceReplicationControllers,
	corev1.ResourceSecrets, corev1.ResourceConfigMaps, corev1.ResourcePersistentVolumeClaims, corev1.ResourceStorage,
	corev1.ResourceRequestsStorage, corev1.ResourceServicesNodePorts, corev1.ResourceServicesLoadBalancers,
)

// standardContainerResources are the names without a prefix that a container may ask for.
var standardContainerResources = sets.New(corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage)

// integerResources are counted in whole numbers.
var integerResources = sets.New(
	corev1.ResourcePods, corev1.ResourceQuotas, corev1.ResourceServices, corev1.ResourceReplicationControllers,
	corev1.ResourceSecrets, corev1.ResourceConfigMaps, corev1.ResourcePersistentVolumeClaims,
	corev1.ResourceServicesNodePorts, corev1.ResourceServicesLoadBalancers,
)

const requestsPrefix = "requests."

// RoundUp rounds quantities up to thousandths, the smallest amount that is kept.
func RoundUp(lists ...corev1.ResourceList) {
	for _, list := range lists {
		for name, quantity := range list {
			quantity.RoundUp(resource.Milli)
			list[name] = quantity
		}
	}
}

// ValidateNonnegativeQuantity refuses amounts below zero.
func ValidateNonnegativeQuantity(q resource.Quantity, path *field.Path) field.ErrorList {
	if q.Sign() < 0 {
		return field.ErrorList{field.Invalid(path, q.String(), "cannot be negative")}
	}
	return nil
}

// ValidatePositiveQuantity refuses zero and less.
func ValidatePositiveQuantity(q resource.Quantity, path *field.Path) field.ErrorList {
	if q.Sign() <= 0 {
		return field.ErrorList{field.Invalid(path, q.String(), "must be more than zero")}
	}
	return nil
}

// ValidateResourceQuantity checks an amount of a resource: nonnegative, and whole where the resource is counted.
func ValidateResourceQuantity(name corev1.ResourceName, q resource.Quantity, path *field.Path) field.ErrorList {
	errs := ValidateNonnegativeQuantity(q, path)
	if IsIntegerResource(name) && q.MilliValue()%1000 != 0 {
		errs = append(errs, field.Invalid(path, q.String(), "must be a whole number"))
	}
	return errs
}

// IsIntegerResource reports whether amounts of the resource are whole numbers.
func IsIntegerResource(name corev1.ResourceName) bool {
	return integerResources.Has(name) || IsExtendedResource(name)
}

// IsNativeResource reports whether the name has no prefix or one of kubernetes.io.
func IsNativeResource(name corev1.ResourceName) bool {
	return !strings.Contains(string(name), "/") || strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
}

// IsExtendedResource reports whether the name is that of a resource which nodes advertise and the system knows nothing about.
func IsExtendedResource(name corev1.ResourceName) bool {
	if IsNativeResource(name) || strings.HasPrefix(string(name), requestsPrefix) {
		return false
	}
	// Its quota must have a name too.
	return len(validation.IsQualifiedName(requestsPrefix+string(name))) == 0
}

// IsHugePages reports whether the name is that of huge pages of some size.
func IsHugePages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// IsStandardContainerResource reports whether a container may ask for the resource by a name without prefix.
func IsStandardContainerResource(name corev1.ResourceName) bool {
	return standardContainerResources.Has(name) || IsHugePages(name)
}

// IsStandardResource reports whether the resource is one with a name without prefix.
func IsStandardResource(name corev1.ResourceName) bool {
	return standardResources.Has(name) || IsQuotaHugePages(name)
}

// IsStandardQuotaResource reports whether a quota may limit the resource by a name without prefix.
func IsStandardQuotaResource(name corev1.ResourceName) bool {
	return IsStandardResource(name) && name != corev1.ResourceStorage
}

// IsQuotaHugePages reports whether the name is that of huge pages of some size, or of requests for them.
func IsQuotaHugePages(name corev1.ResourceName) bool {
	return IsHugePages(name) || strings.HasPrefix(string(name), corev1.ResourceRequestsHugePagesPrefix)
}

// ValidateResourceName checks the name of a resource in general; names without prefix must be standard ones.
func ValidateResourceName(name corev1.ResourceName, path *field.Path) field.ErrorList {
	errs := validateQualified(name, path)
	if len(errs) == 0 && !strings.Contains(string(name), "/") && !IsStandardResource(name) {
		errs = append(errs, field.Invalid(path, name, "is neither a standard resource nor a name with a prefix"))
	}
	return errs
}

// ValidateContainerResourceName checks the name of a resource that a container asks for.
func ValidateContainerResourceName(name corev1.ResourceName, path *field.Path) field.ErrorList {
	errs := ValidateResourceName(name, path)
	switch {
	case !strings.Contains(string(name), "/"):
		if !IsStandardContainerResource(name) {
			errs = append(errs, field.Invalid(path, name, "is not a standard resource of containers"))
		}
	case !IsNativeResource(name) && !IsExtendedResource(name):
		errs = append(errs, field.Invalid(path, name, "is not the name of an extended resource"))
	}
	return errs
}

func validateQualified(name corev1.ResourceName, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, msg := range validation.IsQualifiedName(string(name)) {
		errs = append(errs, field.Invalid(path, name, msg))
	}
	return errs
}
