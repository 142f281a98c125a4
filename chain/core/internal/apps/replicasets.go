package apps

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/kinproc/kinproc/chain/core/internal/rules/podspec"
	"github.com/kinproc/kinproc/chain/core/internal/rules/workloads"
	"github.com/kinproc/kinproc/chain/features"
	"github.com/kinproc/kinproc/chain/kind"
)

// ReplicaSets declares replicasets.
func ReplicaSets() *kind.Kind[*appsv1.ReplicaSet] {
	return &kind.Kind[*appsv1.ReplicaSet]{
		Plural:     "replicasets",
		ShortNames: []string{"rs"},
		Categories: []string{"all"},
		Default: func(r *appsv1.ReplicaSet) {
			podspec.SetDefaults(&r.Spec.Template.Spec)
			defaultTo(&r.Spec.Replicas, 1)
		},
		PrepareCreate: func(_ context.Context, r *appsv1.ReplicaSet) {
			podspec.DropDisabledFields(&r.Spec.Template, nil)
		},
		PrepareUpdate: func(_ context.Context, r, old *appsv1.ReplicaSet) {
			podspec.DropDisabledFields(&r.Spec.Template, &old.Spec.Template)
		},
		Validate: func(_ context.Context, r *appsv1.ReplicaSet) field.ErrorList {
			return validateReplicaSetSpec(&r.Spec, nil)
		},
		ValidateUpdate: func(_ context.Context, r, old *appsv1.ReplicaSet) field.ErrorList {
			return append(validateReplicaSetSpec(&r.Spec, &old.Spec.Template),
				validateSelectorUnchanged(r.Spec.Selector, old.Spec.Selector)...)
		},
		Table: kind.Table[*appsv1.ReplicaSet]{
			Columns: append([]kind.Column{
				kind.NameColumn(),
				{Name: "Desired", Type: "integer", Description: "Desired pods."},
				{Name: "Current", Type: "integer", Description: "Pods that exist."},
				{Name: "Ready", Type: "integer", Description: "Pods that are ready."},
				kind.AgeColumn(),
			}, wideColumns()...),
			Row: func(r *appsv1.ReplicaSet) []any {
				return append([]any{
					r.Name, int64(ptr.Deref(r.Spec.Replicas, 0)), int64(r.Status.Replicas),
					int64(r.Status.ReadyReplicas), kind.Age(r),
				}, wideCells(&r.Spec.Template, r.Spec.Selector)...)
			},
		},
		Warnings: func(_ context.Context, r, old *appsv1.ReplicaSet) []string {
			if old == nil {
				return append(workloads.PodNameWarnings(r.Name),
					podspec.TemplateWarnings(templatePath, &r.Spec.Template, nil)...)
			}
			if r.Generation == old.Generation {
				return nil
			}
			return podspec.TemplateWarnings(templatePath, &r.Spec.Template, &old.Spec.Template)
		},
		Status: &kind.Status[*appsv1.ReplicaSet]{
			Prepare: func(_ context.Context, r, old *appsv1.ReplicaSet) {
				features.DropField(features.DeploymentReplicaSetTerminatingReplicas,
					&r.Status.TerminatingReplicas, old.Status.TerminatingReplicas)
			},
			Validate: func(_ context.Context, r, _ *appsv1.ReplicaSet) field.ErrorList {
				s := r.Status
				return append(workloads.ValidateReplicaCounts(workloads.ReplicaCounts{
					Replicas:           s.Replicas,
					FullyLabeled:       s.FullyLabeledReplicas,
					Ready:              s.ReadyReplicas,
					Available:          s.AvailableReplicas,
					ObservedGeneration: s.ObservedGeneration,
				}, statusPath), workloads.ValidateCounters(statusPath, workloads.Counter{
					Field: "terminatingReplicas",
					Value: int64(ptr.Deref(s.TerminatingReplicas, 0)),
				})...)
			},
		},
		Scale: &kind.Scale[*appsv1.ReplicaSet]{
			Replicas:       func(r *appsv1.ReplicaSet) int32 { return ptr.Deref(r.Spec.Replicas, 0) },
			SetReplicas:    func(r *appsv1.ReplicaSet, n int32) { r.Spec.Replicas = &n },
			StatusReplicas: func(r *appsv1.ReplicaSet) int32 { return r.Status.Replicas },
			Selector: func(r *appsv1.ReplicaSet) (string, error) {
				return scaleSelector(r.Spec.Selector)
			},
		},
		Generation: true,
	}
}

func validateReplicaSetSpec(
	spec *appsv1.ReplicaSetSpec, oldTemplate *corev1.PodTemplateSpec,
) field.ErrorList {
	errs := workloads.ValidateCounters(specPath,
		workloads.Counter{Field: "replicas", Value: int64(ptr.Deref(spec.Replicas, 0))},
		workloads.Counter{Field: "minReadySeconds", Value: int64(spec.MinReadySeconds)})
	selector, selectorErrs := validateSelector(spec.Selector)
	errs = append(errs, selectorErrs...)
	if selector != nil {
		errs = append(errs, validateSelected(selector, &spec.Template, oldTemplate)...)
	}
	return errs
}
