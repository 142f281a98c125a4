package legacy

import (
	"context"
	"maps"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/kinproc/kinproc/chain/core/internal/rules/podspec"
	"github.com/kinproc/kinproc/chain/core/internal/rules/workloads"
	"github.com/kinproc/kinproc/chain/kind"
)

// ReplicationControllers declares replicationcontrollers.
func ReplicationControllers() *kind.Kind[*corev1.ReplicationController] {
	path := field.NewPath("spec", "template")
	return &kind.Kind[*corev1.ReplicationController]{
		Plural:     "replicationcontrollers",
		ShortNames: []string{"rc"},
		Categories: []string{"all"},
		Name:       kind.GeneratedName,
		Default:    defaultReplicationController,
		PrepareCreate: func(_ context.Context, r *corev1.ReplicationController) {
			if r.Spec.Template != nil {
				podspec.DropDisabledFields(r.Spec.Template, nil)
			}
		},
		PrepareUpdate: func(_ context.Context, r, old *corev1.ReplicationController) {
			if r.Spec.Template != nil {
				podspec.DropDisabledFields(r.Spec.Template, old.Spec.Template)
			}
		},
		Validate: func(_ context.Context, r *corev1.ReplicationController) field.ErrorList {
			return validateReplicationController(r, nil)
		},
		ValidateUpdate: func(_ context.Context, r, old *corev1.ReplicationController) field.ErrorList {
			return validateReplicationController(r, old.Spec.Template)
		},
		Table: kind.Table[*corev1.ReplicationController]{
			Columns: []kind.Column{
				kind.NameColumn(),
				{Name: "Desired", Type: "integer", Description: "Number of desired pods."},
				{Name: "Current", Type: "integer", Description: "Number of existing pods."},
				{Name: "Ready", Type: "integer", Description: "Number of ready pods."},
				kind.AgeColumn(),
				{Name: "Containers", Priority: 1, Description: "Names of the containers in the template."},
				{Name: "Images", Priority: 1, Description: "Images of the containers in the template."},
				{
					Name:        "Selector",
					Priority:    1,
					Description: "Labels of the pods that belong to the controller.",
				},
			},
			Row: replicationControllerRow,
		},
		Warnings: func(_ context.Context, r, old *corev1.ReplicationController) []string {
			var warnings []string
			if old == nil {
				warnings = workloads.PodNameWarnings(r.Name)
			}
			tmpl := r.Spec.Template
			if old != nil {
				if r.Generation == old.Generation {
					return nil
				}
				// On an update, kube-apiserver returns the warnings about the old template.
				tmpl = old.Spec.Template
			}
			if tmpl == nil {
				return warnings
			}
			return append(warnings, podspec.TemplateWarnings(path, tmpl, nil)...)
		},
		Status: &kind.Status[*corev1.ReplicationController]{
			Validate: func(_ context.Context, r, _ *corev1.ReplicationController) field.ErrorList {
				s := r.Status
				return workloads.ValidateReplicaCounts(workloads.ReplicaCounts{
					Replicas:           s.Replicas,
					FullyLabeled:       s.FullyLabeledReplicas,
					Ready:              s.ReadyReplicas,
					Available:          s.AvailableReplicas,
					ObservedGeneration: s.ObservedGeneration,
				}, field.NewPath("status"))
			},
		},
		Scale: &kind.Scale[*corev1.ReplicationController]{
			Replicas:       wantedReplicas,
			SetReplicas:    func(r *corev1.ReplicationController, n int32) { r.Spec.Replicas = &n },
			StatusReplicas: func(r *corev1.ReplicationController) int32 { return r.Status.Replicas },
			Selector: func(r *corev1.ReplicationController) (string, error) {
				return labels.Set(r.Spec.Selector).AsSelectorPreValidated().String(), nil
			},
		},
		Generation: true,
		Fields: map[string]func(*corev1.ReplicationController) string{
			"status.replicas": func(r *corev1.ReplicationController) string {
				return strconv.Itoa(int(r.Status.Replicas))
			},
		},
		Quirks: kind.Quirks{
			// The storage path of kube-apiserver, which is older than groups and the present name.
			StoragePath: "controllers",
			// The default predates garbage collection.
			DefaultDeletion: func(context.Context) rest.GarbageCollectionPolicy {
				return rest.OrphanDependents
			},
		},
	}
}

func wantedReplicas(r *corev1.ReplicationController) int32 {
	if r.Spec.Replicas == nil {
		return 0
	}
	return *r.Spec.Replicas
}

func replicationControllerRow(r *corev1.ReplicationController) []any {
	var names, images string
	if r.Spec.Template != nil {
		names, images = podspec.ContainerCells(&r.Spec.Template.Spec)
	}
	return []any{
		r.Name, int64(wantedReplicas(r)), int64(r.Status.Replicas), int64(r.Status.ReadyReplicas),
		kind.Age(r), names, images, labels.FormatLabels(r.Spec.Selector),
	}
}

// defaultReplicationController sets defaults. Labels and selector default to the labels of the
// template.
func defaultReplicationController(r *corev1.ReplicationController) {
	if r.Spec.Replicas == nil {
		r.Spec.Replicas = new(int32(1))
	}
	tmpl := r.Spec.Template
	if tmpl == nil {
		return
	}
	podspec.SetDefaults(&tmpl.Spec)
	if len(tmpl.Labels) == 0 {
		return
	}
	if len(r.Spec.Selector) == 0 {
		r.Spec.Selector = maps.Clone(tmpl.Labels)
	}
	if len(r.Labels) == 0 {
		r.Labels = maps.Clone(tmpl.Labels)
	}
}

func validateReplicationController(
	r *corev1.ReplicationController, oldTemplate *corev1.PodTemplateSpec,
) field.ErrorList {
	path := field.NewPath("spec")
	errs := workloads.ValidateCounters(path,
		workloads.Counter{Field: "minReadySeconds", Value: int64(r.Spec.MinReadySeconds)},
		workloads.Counter{Field: "replicas", Value: int64(wantedReplicas(r))})
	if len(r.Spec.Selector) == 0 {
		errs = append(errs, field.Required(path.Child("selector"),
			"must select the pods of the controller"))
	}
	path = path.Child("template")
	tmpl := r.Spec.Template
	if tmpl == nil {
		return append(errs, field.Required(path, "must specify a pod template"))
	}
	errs = append(errs, workloads.ValidateTemplateLabels(labels.SelectorFromSet(r.Spec.Selector),
		tmpl, path)...)
	errs = append(errs, podspec.ValidateTemplate(tmpl, path, podspec.OptionsFor(tmpl, oldTemplate))...)
	return append(errs, workloads.ValidateEverlasting(tmpl, path)...)
}
