package core

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kinproc/kinproc/chain/core/internal/admissionregistration"
	"github.com/kinproc/kinproc/chain/core/internal/certificates"
	"github.com/kinproc/kinproc/chain/core/internal/rules/quantities"
	"github.com/kinproc/kinproc/chain/core/internal/scheduling"
)

// This file exports what admission plugins need to know about the built-in kinds.

// AdmissionInitializer returns an initializer that tells the policy and webhook plugins which
// resources are exempt from them, and how to load policies and webhooks from files (KEP-5793).
func AdmissionInitializer() admission.PluginInitializer {
	return admissionregistration.Initializer{}
}

// SystemPriorityClasses returns the priority classes that exist in every cluster.
func SystemPriorityClasses() []*schedulingv1.PriorityClass { return scheduling.SystemClasses() }

// MayUseSigner reports whether a user has permission for a verb, such as "sign" or "approve", on a
// certificate signer or on all signers of its domain.
func MayUseSigner(
	ctx context.Context, a authorizer.UnconditionalAuthorizer, u user.Info, verb, signer string,
) bool {
	return certificates.MayUseSigner(ctx, a, u, verb, signer)
}

// IsNativeResource reports whether a container resource has no prefix or a kubernetes.io prefix.
func IsNativeResource(name corev1.ResourceName) bool { return quantities.IsNativeResource(name) }

// IsExtendedResource reports whether the resource is an extended resource, which nodes advertise
// and Kubernetes does not interpret.
func IsExtendedResource(name corev1.ResourceName) bool {
	return quantities.IsExtendedResource(name)
}

// IsHugePages reports whether the resource is huge pages of any size.
func IsHugePages(name corev1.ResourceName) bool { return quantities.IsHugePages(name) }
