package apps

import (
	"context"
	"fmt"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/kinproc/kinproc/chain/core/internal/rules/podspec"
	"github.com/kinproc/kinproc/chain/core/internal/rules/workloads"
	"github.com/kinproc/kinproc/chain/features"
	"github.com/kinproc/kinproc/chain/kind"
)

// Deployments declares deployments. The annotation deprecated.deployment.rollback.to was a field in
// older versions and is validated like one.
func Deployments() *kind.Kind[*appsv1.Deployment] {
	return &kind.Kind[*appsv1.Deployment]{
		Plural:     "deployments",
		ShortNames: []string{"deploy"},
		Categories: []string{"all"},
		Default:    defaultDeployment,
		PrepareCreate: func(_ context.Context, d *appsv1.Deployment) {
			podspec.DropDisabledFields(&d.Spec.Template, nil)
		},
		PrepareUpdate: func(_ context.Context, d, old *appsv1.Deployment) {
			podspec.DropDisabledFields(&d.Spec.Template, &old.Spec.Template)
		},
		Validate: func(_ context.Context, d *appsv1.Deployment) field.ErrorList {
			return append(validateDeploymentSpec(&d.Spec, nil), validateRollback(d)...)
		},
		ValidateUpdate: func(_ context.Context, d, old *appsv1.Deployment) field.ErrorList {
			errs := append(validateDeploymentSpec(&d.Spec, &old.Spec.Template), validateRollback(d)...)
			return append(errs, validateSelectorUnchanged(d.Spec.Selector, old.Spec.Selector)...)
		},
		Table: kind.Table[*appsv1.Deployment]{
			Columns: append([]kind.Column{
				kind.NameColumn(),
				{Name: "Ready", Description: "Ready pods and desired pods."},
				{Name: "Up-to-date", Description: "Pods created from the current template."},
				{Name: "Available", Description: "Pods that have been ready for minReadySeconds."},
				kind.AgeColumn(),
			}, wideColumns()...),
			Row: func(d *appsv1.Deployment) []any {
				ready := fmt.Sprintf("%d/%d", d.Status.ReadyReplicas, ptr.Deref(d.Spec.Replicas, 0))
				return append([]any{
					d.Name, ready, int64(d.Status.UpdatedReplicas), int64(d.Status.AvailableReplicas), kind.Age(d),
				}, wideCells(&d.Spec.Template, d.Spec.Selector)...)
			},
		},
		Warnings: deploymentWarnings,
		Status: &kind.Status[*appsv1.Deployment]{
			// The status subresource may change annotations, but not labels.
			Prepare: func(_ context.Context, d, old *appsv1.Deployment) {
				d.Labels = old.Labels
				features.DropField(features.DeploymentReplicaSetTerminatingReplicas,
					&d.Status.TerminatingReplicas, old.Status.TerminatingReplicas)
			},
			ResetFields: []string{"spec", "metadata.labels"},
			Validate:    validateDeploymentStatus,
		},
		Scale: &kind.Scale[*appsv1.Deployment]{
			Replicas:       func(d *appsv1.Deployment) int32 { return ptr.Deref(d.Spec.Replicas, 0) },
			SetReplicas:    func(d *appsv1.Deployment, n int32) { d.Spec.Replicas = &n },
			StatusReplicas: func(d *appsv1.Deployment) int32 { return d.Status.Replicas },
			Selector: func(d *appsv1.Deployment) (string, error) {
				return scaleSelector(d.Spec.Selector)
			},
		},
		// The deployment controller copies annotations to replica sets, so changing them increments
		// the generation.
		SameGeneration: func(d, old *appsv1.Deployment) bool {
			return equality.Semantic.DeepEqual(d.Spec, old.Spec) &&
				equality.Semantic.DeepEqual(d.Annotations, old.Annotations)
		},
		Refuse: func(ctx context.Context, d *appsv1.Deployment) error {
			return refuseNoNumber(ctx, d, appsv1.DeprecatedRollbackTo)
		},
		Quirks: kind.Quirks{HiddenAnnotations: []string{appsv1.DeprecatedRollbackTo}},
	}
}

func defaultDeployment(d *appsv1.Deployment) {
	if to, ok := d.Annotations[appsv1.DeprecatedRollbackTo]; ok {
		if n, err := strconv.ParseInt(to, 10, 64); err == nil {
			d.Annotations[appsv1.DeprecatedRollbackTo] = strconv.FormatInt(n, 10)
		} else if to == "" {
			delete(d.Annotations, appsv1.DeprecatedRollbackTo)
		}
	}
	podspec.SetDefaults(&d.Spec.Template.Spec)
	defaultTo(&d.Spec.Replicas, 1)
	defaultTo(&d.Spec.RevisionHistoryLimit, 10)
	defaultTo(&d.Spec.ProgressDeadlineSeconds, 600)

	strategy := &d.Spec.Strategy
	if strategy.Type == "" {
		strategy.Type = appsv1.RollingUpdateDeploymentStrategyType
	}
	if strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
		defaultTo(&strategy.RollingUpdate, appsv1.RollingUpdateDeployment{})
		defaultTo(&strategy.RollingUpdate.MaxUnavailable, intstr.FromString("25%"))
		defaultTo(&strategy.RollingUpdate.MaxSurge, intstr.FromString("25%"))
	}
}

func validateDeploymentSpec(
	spec *appsv1.DeploymentSpec, oldTemplate *corev1.PodTemplateSpec,
) field.ErrorList {
	errs := apivalidation.ValidateNonnegativeField(int64(ptr.Deref(spec.Replicas, 0)),
		specPath.Child("replicas"))
	selector, selectorErrs := validateSelector(spec.Selector)
	errs = append(errs, selectorErrs...)
	if selector != nil {
		errs = append(errs, validateSelected(selector, &spec.Template, oldTemplate)...)
	}
	errs = append(errs, validateDeploymentStrategy(&spec.Strategy, specPath.Child("strategy"))...)
	errs = append(errs, workloads.ValidateCounters(specPath,
		workloads.Counter{Field: "minReadySeconds", Value: int64(spec.MinReadySeconds)},
		workloads.Counter{
			Field: "revisionHistoryLimit",
			Value: int64(ptr.Deref(spec.RevisionHistoryLimit, 0)),
		},
		workloads.Counter{
			Field: "progressDeadlineSeconds",
			Value: int64(ptr.Deref(spec.ProgressDeadlineSeconds, 0)),
		},
	)...)
	if deadline := spec.ProgressDeadlineSeconds; deadline != nil && *deadline <= spec.MinReadySeconds {
		errs = append(errs, field.Invalid(specPath.Child("progressDeadlineSeconds"), *deadline,
			"must be greater than minReadySeconds"))
	}
	return errs
}

func validateRollback(d *appsv1.Deployment) field.ErrorList {
	// Refuse rejects values that are not integers
	n, _ := strconv.ParseInt(d.Annotations[appsv1.DeprecatedRollbackTo], 10, 64)
	return apivalidation.ValidateNonnegativeField(n, specPath.Child("rollback", "version"))
}

func validateDeploymentStrategy(
	strategy *appsv1.DeploymentStrategy, path *field.Path,
) field.ErrorList {
	rolling := path.Child("rollingUpdate")
	switch strategy.Type {
	case appsv1.RecreateDeploymentStrategyType:
		if strategy.RollingUpdate != nil {
			return field.ErrorList{
				field.Forbidden(rolling, "may not be specified when strategy `type` is 'Recreate'"),
			}
		}
		return nil
	case appsv1.RollingUpdateDeploymentStrategyType:
		unavailable := ptr.Deref(strategy.RollingUpdate.MaxUnavailable, intstr.IntOrString{})
		surge := ptr.Deref(strategy.RollingUpdate.MaxSurge, intstr.IntOrString{})
		errs := workloads.ValidateIntOrPercent(unavailable, rolling.Child("maxUnavailable"))
		errs = append(errs, workloads.ValidateUnboundedIntOrPercent(surge, rolling.Child("maxSurge"))...)
		if workloads.IsZero(unavailable) && workloads.IsZero(surge) {
			errs = append(errs, field.Invalid(rolling.Child("maxUnavailable"), unavailable,
				"cannot be 0 when maxSurge is 0"))
		}
		return errs
	}
	return field.ErrorList{field.NotSupported(path, strategy.Type,
		[]appsv1.DeploymentStrategyType{
			appsv1.RecreateDeploymentStrategyType, appsv1.RollingUpdateDeploymentStrategyType,
		})}
}

func deploymentWarnings(_ context.Context, d, old *appsv1.Deployment) []string {
	if old == nil {
		return append(workloads.PodNameWarnings(d.Name),
			podspec.TemplateWarnings(templatePath, &d.Spec.Template, nil)...)
	}
	if d.Generation == old.Generation {
		return nil
	}
	return podspec.TemplateWarnings(templatePath, &d.Spec.Template, &old.Spec.Template)
}

func validateDeploymentStatus(_ context.Context, d, old *appsv1.Deployment) field.ErrorList {
	s := d.Status
	all := workloads.Counter{Field: "replicas", Value: int64(s.Replicas)}
	updated := workloads.Counter{Field: "updatedReplicas", Value: int64(s.UpdatedReplicas)}
	ready := workloads.Counter{Field: "readyReplicas", Value: int64(s.ReadyReplicas)}
	available := workloads.Counter{Field: "availableReplicas", Value: int64(s.AvailableReplicas)}

	errs := workloads.ValidateCounters(statusPath, all, updated, ready, available,
		workloads.Counter{Field: "observedGeneration", Value: s.ObservedGeneration},
		workloads.Counter{Field: "unavailableReplicas", Value: int64(s.UnavailableReplicas)},
		workloads.Counter{
			Field: "terminatingReplicas",
			Value: int64(ptr.Deref(s.TerminatingReplicas, 0)),
		})
	errs = append(errs, workloads.ValidateAtMost(statusPath, all, updated, ready, available)...)
	errs = append(errs, workloads.ValidateAtMost(statusPath, ready, available)...)
	return append(errs, workloads.ValidateCollisionCount(s.CollisionCount, old.Status.CollisionCount,
		statusPath.Child("collisionCount"))...)
}
