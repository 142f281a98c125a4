package legacy

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/core/internal/rules"
	"github.com/kinproc/kinproc/chain/kind"
)

// maxDataSize is the maximum total size of the values of a ConfigMap or a Secret, in bytes. The
// whole object must fit into an etcd request.
const maxDataSize = 1 << 20

// ConfigMaps declares configmaps.
func ConfigMaps() *kind.Kind[*corev1.ConfigMap] {
	return &kind.Kind[*corev1.ConfigMap]{
		Plural:     "configmaps",
		ShortNames: []string{"cm"},
		Default: func(c *corev1.ConfigMap) {
			if c.Data == nil {
				c.Data = map[string]string{}
			}
		},
		Validate:       validateConfigMap,
		ValidateUpdate: validateConfigMapUpdate,
		Table: kind.Table[*corev1.ConfigMap]{
			Columns: []kind.Column{
				kind.NameColumn(),
				{Name: "Data", Description: "Number of entries in data and binaryData."},
				kind.AgeColumn(),
			},
			Row: func(c *corev1.ConfigMap) []any {
				return []any{c.Name, int64(len(c.Data) + len(c.BinaryData)), kind.Age(c)}
			},
		},
		Quirks: kind.Quirks{NameOnUpdate: true},
	}
}

func validateConfigMap(_ context.Context, c *corev1.ConfigMap) field.ErrorList {
	var errs field.ErrorList
	size := 0
	for key, value := range c.Data {
		path := field.NewPath("data").Key(key)
		errs = append(errs, rules.Invalid(path, key, validation.IsConfigMapKey(key))...)
		if _, both := c.BinaryData[key]; both {
			errs = append(errs, field.Invalid(path, key, "duplicate of key present in binaryData"))
		}
		size += len(value)
	}
	for key, value := range c.BinaryData {
		errs = append(errs, rules.Invalid(field.NewPath("binaryData").Key(key), key,
			validation.IsConfigMapKey(key))...)
		size += len(value)
	}
	if size > maxDataSize {
		errs = append(errs, field.TooLong(field.NewPath(""),
			"" /* do not repeat the data */, maxDataSize))
	}
	return errs
}

func validateConfigMapUpdate(ctx context.Context, c, old *corev1.ConfigMap) field.ErrorList {
	var errs field.ErrorList
	if old.Immutable != nil && *old.Immutable {
		errs = append(errs, validateStaysImmutable(c.Immutable)...)
		errs = append(errs, forbidChange(c.Data, old.Data, "data")...)
		errs = append(errs, forbidChange(c.BinaryData, old.BinaryData, "binaryData")...)
	}
	return append(errs, validateConfigMap(ctx, c)...)
}
