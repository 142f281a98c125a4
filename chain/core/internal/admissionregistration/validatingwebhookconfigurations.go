package admissionregistration

import (
	"context"
	"reflect"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/kind"
)

// ValidatingWebhookConfigurations declares validatingwebhookconfigurations.
func ValidatingWebhookConfigurations() *kind.Kind[*admissionv1.ValidatingWebhookConfiguration] {
	type T = *admissionv1.ValidatingWebhookConfiguration
	return &kind.Kind[T]{
		Plural:        "validatingwebhookconfigurations",
		Categories:    categories(),
		ClusterScoped: true,
		Name:          validateName,
		Default: func(c T) {
			for i := range c.Webhooks {
				defaultWebhook(&c.Webhooks[i])
			}
		},
		Validate: func(_ context.Context, c T) field.ErrorList {
			return validateWebhooks(c.Webhooks, tolerated{})
		},
		ValidateUpdate: func(_ context.Context, c, old T) field.ErrorList {
			return validateWebhooks(c.Webhooks, toleratedIn(c.Webhooks, old.Webhooks))
		},
		Table:    webhookTable(func(c T) int { return len(c.Webhooks) }),
		Warnings: webhookWarnings(func(c T) []webhook { return c.Webhooks }),
		// Replacing a nil list by an empty one increments the generation, though both mean the
		// same.
		SameGeneration: func(c, old T) bool {
			return reflect.DeepEqual(c.Webhooks, old.Webhooks)
		},
		RequireResourceVersion: true,
		Quirks:                 kind.Quirks{NameOnUpdate: true, AnyFinalizers: true},
	}
}

func webhookTable[T kind.Object](count func(T) int) kind.Table[T] {
	return kind.Table[T]{
		Columns: []kind.Column{
			kind.NameColumn(),
			{
				Name:        "Webhooks",
				Type:        "integer",
				Description: "Number of webhooks that the configuration calls.",
			},
			kind.AgeColumn(),
		},
		Row: func(c T) []any { return []any{c.GetName(), int64(count(c)), kind.Age(c)} },
	}
}

func warnings[T interface {
	comparable
	kind.Object
}](_ context.Context, obj, old T) []string {
	var none T
	if old != none {
		return nil
	}
	return nameWarnings(obj.GetName())
}
