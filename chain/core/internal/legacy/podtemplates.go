package legacy

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/core/internal/rules/podspec"
	"github.com/kinproc/kinproc/chain/kind"
)

// PodTemplates declares podtemplates.
func PodTemplates() *kind.Kind[*corev1.PodTemplate] {
	return &kind.Kind[*corev1.PodTemplate]{
		Plural:  "podtemplates",
		Default: func(t *corev1.PodTemplate) { podspec.SetDefaults(&t.Template.Spec) },
		PrepareCreate: func(_ context.Context, t *corev1.PodTemplate) {
			podspec.DropDisabledFields(&t.Template, nil)
		},
		PrepareUpdate: func(_ context.Context, t, old *corev1.PodTemplate) {
			podspec.DropDisabledFields(&t.Template, &old.Template)
		},
		Validate: func(_ context.Context, t *corev1.PodTemplate) field.ErrorList {
			return podspec.ValidateTemplate(&t.Template, field.NewPath("template"), podspec.Options{})
		},
		ValidateUpdate: func(_ context.Context, t, old *corev1.PodTemplate) field.ErrorList {
			return podspec.ValidateTemplate(&t.Template, field.NewPath("template"),
				podspec.OptionsFor(&t.Template, &old.Template))
		},
		Table: kind.Table[*corev1.PodTemplate]{
			Columns: []kind.Column{
				kind.NameColumn(),
				{Name: "Containers", Description: "Names of the containers."},
				{Name: "Images", Description: "Images of the containers."},
				{Name: "Pod Labels", Description: "Labels of the pods created from the template."},
			},
			Row: func(t *corev1.PodTemplate) []any {
				names, images := podspec.ContainerCells(&t.Template.Spec)
				return []any{t.Name, names, images, labels.FormatLabels(t.Template.Labels)}
			},
		},
		Warnings: podTemplateWarnings,
		SameGeneration: func(t, old *corev1.PodTemplate) bool {
			return equality.Semantic.DeepEqual(t.Template, old.Template)
		},
		Quirks: kind.Quirks{ReturnDeleted: true},
	}
}

func podTemplateWarnings(_ context.Context, t, old *corev1.PodTemplate) []string {
	if old == nil {
		return podspec.TemplateWarnings(field.NewPath("template"), &t.Template, nil)
	}
	return podspec.TemplateWarnings(field.NewPath("template"), &t.Template, &old.Template)
}
