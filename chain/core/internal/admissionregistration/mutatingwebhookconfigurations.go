package admissionregistration

import (
	"context"
	"reflect"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/kind"
)

// MutatingWebhookConfigurations declares mutatingwebhookconfigurations.
func MutatingWebhookConfigurations() *kind.Kind[*admissionv1.MutatingWebhookConfiguration] {
	type T = *admissionv1.MutatingWebhookConfiguration
	return &kind.Kind[T]{
		Plural:        "mutatingwebhookconfigurations",
		Categories:    categories(),
		ClusterScoped: true,
		Name:          validateName,
		Default: func(c T) {
			for i := range c.Webhooks {
				w := &c.Webhooks[i]
				common := shared(w)
				defaultWebhook(&common)
				w.FailurePolicy, w.MatchPolicy, w.TimeoutSeconds = common.FailurePolicy, common.MatchPolicy,
					common.TimeoutSeconds
				w.NamespaceSelector, w.ObjectSelector = common.NamespaceSelector, common.ObjectSelector
				setDefault(&w.ReinvocationPolicy, admissionv1.NeverReinvocationPolicy)
			}
		},
		Validate: func(_ context.Context, c T) field.ErrorList {
			return validateMutating(c, tolerated{})
		},
		ValidateUpdate: func(_ context.Context, c, old T) field.ErrorList {
			return validateMutating(c, toleratedIn(sharedAll(c.Webhooks), sharedAll(old.Webhooks)))
		},
		Table:    webhookTable(func(c T) int { return len(c.Webhooks) }),
		Warnings: webhookWarnings(func(c T) []webhook { return sharedAll(c.Webhooks) }),
		// Replacing a nil list by an empty one increments the generation, though both mean the
		// same.
		SameGeneration: func(c, old T) bool {
			return reflect.DeepEqual(c.Webhooks, old.Webhooks)
		},
		RequireResourceVersion: true,
		Quirks:                 kind.Quirks{NameOnUpdate: true, AnyFinalizers: true},
	}
}

func validateMutating(c *admissionv1.MutatingWebhookConfiguration, t tolerated) field.ErrorList {
	errs := validateWebhooks(sharedAll(c.Webhooks), t)
	for i, w := range c.Webhooks {
		errs = append(errs, oneOf(w.ReinvocationPolicy, reinvocations,
			field.NewPath("webhooks").Index(i).Child("reinvocationPolicy"))...)
	}
	return errs
}

// shared returns a view of w, which shares w's pointers and slices.
func shared(w *admissionv1.MutatingWebhook) webhook {
	return webhook{
		Name:                    w.Name,
		ClientConfig:            w.ClientConfig,
		Rules:                   w.Rules,
		FailurePolicy:           w.FailurePolicy,
		MatchPolicy:             w.MatchPolicy,
		NamespaceSelector:       w.NamespaceSelector,
		ObjectSelector:          w.ObjectSelector,
		SideEffects:             w.SideEffects,
		TimeoutSeconds:          w.TimeoutSeconds,
		AdmissionReviewVersions: w.AdmissionReviewVersions,
		MatchConditions:         w.MatchConditions,
	}
}

func sharedAll(list []admissionv1.MutatingWebhook) []webhook {
	hooks := make([]webhook, len(list))
	for i := range list {
		hooks[i] = shared(&list[i])
	}
	return hooks
}
