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

// This file holds what admission plugins have to know of the built-in kinds.

// AdmissionInitializer tells the plugins of policies and webhooks which resources they are not asked
// about, and how to read policies and webhooks from files (KEP-5793).
func AdmissionInitializer() admission.PluginInitializer { return admissionregistration.Initializer{} }

// SystemPriorityClasses are the priority classes that every cluster has.
func SystemPriorityClasses() []*schedulingv1.PriorityClass { return scheduling.SystemClasses() }

// MayUseSigner asks whether a user may do something, such as "sign" or "approve", for the signer of
// certificates, or for all signers of its domain.
func MayUseSigner(ctx context.Context, a authorizer.UnconditionalAuthorizer, u user.Info, verb, signer string) bool {
	return certificates.MayUseSigner(ctx, a, u, verb, signer)
}

// IsNativeResource reports whether a resource of containers has no prefix or one of kubernetes.io.
func IsNativeResource(name corev1.ResourceName) bool { return quantities.IsNativeResource(name) }

// IsExtendedResource reports whether nodes advertise the resource and the system knows nothing of it.
func IsExtendedResource(name corev1.ResourceName) bool { return quantities.IsExtendedResource(name) }

// IsHugePages reports whether the resource is huge pages of some size.
func IsHugePages(name corev1.ResourceName) bool { return quantities.IsHugePages(name) }
