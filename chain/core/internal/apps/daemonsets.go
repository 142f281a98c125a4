package apps

import (
	"context"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/kinproc/kinproc/chain/core/internal/rules/podspec"
	"github.com/kinproc/kinproc/chain/core/internal/rules/workloads"
	"github.com/kinproc/kinproc/chain/kind"
)

// DaemonSets declares daemonsets. The server maintains the annotation
// deprecated.daemonset.template.generation: it counts changes to the template, as the field
// templateGeneration did in older versions.
func DaemonSets() *kind.Kind[*appsv1.DaemonSet] {
	return &kind.Kind[*appsv1.DaemonSet]{
		Plural:     "daemonsets",
		ShortNames: []string{"ds"},
		Categories: []string{"all"},
		Default:    defaultDaemonSet,
		PrepareCreate: func(_ context.Context, d *appsv1.DaemonSet) {
			podspec.DropDisabledFields(&d.Spec.Template, nil)
			setTemplateGeneration(d, max(templateGeneration(d), 1))
		},
		PrepareUpdate: func(_ context.Context, d, old *appsv1.DaemonSet) {
			podspec.DropDisabledFields(&d.Spec.Template, &old.Spec.Template)
			n := templateGeneration(old)
			if !equality.Semantic.DeepEqual(d.Spec.Template, old.Spec.Template) {
				n++
			}
			setTemplateGeneration(d, n)
		},
		Validate: func(_ context.Context, d *appsv1.DaemonSet) field.ErrorList {
			return validateDaemonSetSpec(&d.Spec, nil)
		},
		ValidateUpdate: func(_ context.Context, d, old *appsv1.DaemonSet) field.ErrorList {
			return append(validateDaemonSetSpec(&d.Spec, &old.Spec),
				validateSelectorUnchanged(d.Spec.Selector, old.Spec.Selector)...)
		},
		Table: kind.Table[*appsv1.DaemonSet]{
			Columns: append([]kind.Column{
				kind.NameColumn(),
				{Name: "Desired", Type: "integer", Description: "Nodes that should run the pod."},
				{Name: "Current", Type: "integer", Description: "Desired nodes that run the pod."},
				{Name: "Ready", Type: "integer", Description: "Desired nodes whose pod is ready."},
				{
					Name:        "Up-to-date",
					Type:        "integer",
					Description: "Nodes whose pod was created from the current template.",
				},
				{
					Name:        "Available",
					Type:        "integer",
					Description: "Nodes whose pod has been ready for minReadySeconds.",
				},
				{Name: "Node Selector", Description: "Labels of the nodes that should run the pod."},
				kind.AgeColumn(),
			}, wideColumns()...),
			Row: func(d *appsv1.DaemonSet) []any {
				s := d.Status
				return append([]any{
					d.Name, int64(s.DesiredNumberScheduled), int64(s.CurrentNumberScheduled),
					int64(s.NumberReady), int64(s.UpdatedNumberScheduled), int64(s.NumberAvailable),
					labels.FormatLabels(d.Spec.Template.Spec.NodeSelector), kind.Age(d),
				},
					wideCells(&d.Spec.Template, d.Spec.Selector)...)
			},
		},
		Warnings: func(_ context.Context, d, old *appsv1.DaemonSet) []string {
			if old == nil {
				return podspec.TemplateWarnings(templatePath, &d.Spec.Template, nil)
			}
			if d.Generation == old.Generation {
				return nil
			}
			return podspec.TemplateWarnings(templatePath, &d.Spec.Template, &old.Spec.Template)
		},
		Status: &kind.Status[*appsv1.DaemonSet]{
			Prepare: func(_ context.Context, d, old *appsv1.DaemonSet) {
				setTemplateGeneration(d, templateGeneration(old))
			},
			Validate: validateDaemonSetStatus,
		},
		Generation: true,
		Refuse: func(ctx context.Context, d *appsv1.DaemonSet) error {
			return refuseNoNumber(ctx, d, appsv1.DeprecatedTemplateGeneration)
		},
		Quirks: kind.Quirks{HiddenAnnotations: []string{appsv1.DeprecatedTemplateGeneration}},
	}
}

func templateGeneration(d *appsv1.DaemonSet) int64 {
	// 0 in objects stored before the annotation was validated
	n, _ := strconv.ParseInt(d.Annotations[appsv1.DeprecatedTemplateGeneration], 10, 64)
	return n
}

func setTemplateGeneration(d *appsv1.DaemonSet, n int64) {
	if d.Annotations == nil {
		d.Annotations = map[string]string{}
	}
	d.Annotations[appsv1.DeprecatedTemplateGeneration] = strconv.FormatInt(n, 10)
}

func defaultDaemonSet(d *appsv1.DaemonSet) {
	// Default the annotation, so that the writer of the object owns it in managedFields.
	if _, ok := d.Annotations[appsv1.DeprecatedTemplateGeneration]; !ok {
		setTemplateGeneration(d, 0)
	}
	podspec.SetDefaults(&d.Spec.Template.Spec)
	defaultTo(&d.Spec.RevisionHistoryLimit, 10)

	strategy := &d.Spec.UpdateStrategy
	if strategy.Type == "" {
		strategy.Type = appsv1.RollingUpdateDaemonSetStrategyType
	}
	if strategy.Type == appsv1.RollingUpdateDaemonSetStrategyType {
		defaultTo(&strategy.RollingUpdate, appsv1.RollingUpdateDaemonSet{})
		defaultTo(&strategy.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
	}
	// for any strategy: both are plain values in kube-apiserver's internal version
	if rolling := strategy.RollingUpdate; rolling != nil {
		defaultTo(&rolling.MaxUnavailable, intstr.FromInt32(0))
		defaultTo(&rolling.MaxSurge, intstr.FromInt32(0))
	}
}

func validateDaemonSetSpec(spec, old *appsv1.DaemonSetSpec) field.ErrorList {
	opts := podspec.OptionsFor(&spec.Template, nil)
	selectorOpts := metav1validation.LabelSelectorValidationOptions{}
	if old != nil {
		opts = podspec.OptionsFor(&spec.Template, &old.Template)
		selectorOpts.AllowInvalidLabelValueInSelector =
			metav1validation.LabelSelectorHasInvalidLabelValue(old.Selector)
	}

	errs := metav1validation.ValidateLabelSelector(spec.Selector, selectorOpts, selectorPath)
	if selector, err := metav1.LabelSelectorAsSelector(spec.Selector); err == nil {
		errs = append(errs, workloads.ValidateTemplateLabels(selector, &spec.Template, templatePath)...)
	}
	if spec.Selector != nil {
		errs = append(errs, validateNotEmpty(spec.Selector)...)
	}
	errs = append(errs, podspec.ValidateTemplate(&spec.Template, templatePath, opts)...)
	errs = append(errs, workloads.ValidateEverlasting(&spec.Template, templatePath)...)
	errs = append(errs, workloads.ValidateCounters(specPath,
		workloads.Counter{Field: "minReadySeconds", Value: int64(spec.MinReadySeconds)},
		workloads.Counter{
			Field: "revisionHistoryLimit",
			Value: int64(ptr.Deref(spec.RevisionHistoryLimit, 0)),
		})...)
	return append(errs, validateDaemonSetStrategy(&spec.UpdateStrategy,
		specPath.Child("updateStrategy"))...)
}

func validateDaemonSetStrategy(
	strategy *appsv1.DaemonSetUpdateStrategy, path *field.Path,
) field.ErrorList {
	switch strategy.Type {
	case appsv1.OnDeleteDaemonSetStrategyType:
		return nil
	case appsv1.RollingUpdateDaemonSetStrategyType:
	default:
		return field.ErrorList{field.NotSupported(path, strategy.Type,
			[]appsv1.DaemonSetUpdateStrategyType{
				appsv1.RollingUpdateDaemonSetStrategyType, appsv1.OnDeleteDaemonSetStrategyType,
			})}
	}
	unavailable := ptr.Deref(strategy.RollingUpdate.MaxUnavailable, intstr.IntOrString{})
	surge := ptr.Deref(strategy.RollingUpdate.MaxSurge, intstr.IntOrString{})
	unavailablePath, surgePath := path.Child("rollingUpdate", "maxUnavailable"),
		path.Child("rollingUpdate", "maxSurge")
	errs := workloads.ValidateIntOrPercent(unavailable, unavailablePath)
	errs = append(errs, workloads.ValidateIntOrPercent(surge, surgePath)...)
	switch noneUnavailable, noneMore := workloads.IsZero(unavailable), workloads.IsZero(surge); {
	case noneUnavailable && noneMore:
		errs = append(errs, field.Required(unavailablePath, "cannot be 0 when maxSurge is 0"))
	case !noneUnavailable && !noneMore:
		errs = append(errs, field.Invalid(surgePath, surge,
			"may not be set when maxUnavailable is non-zero"))
	}
	return errs
}

func validateDaemonSetStatus(_ context.Context, d, old *appsv1.DaemonSet) field.ErrorList {
	s := d.Status
	errs := workloads.ValidateCounters(statusPath,
		workloads.Counter{Field: "currentNumberScheduled", Value: int64(s.CurrentNumberScheduled)},
		workloads.Counter{Field: "numberMisscheduled", Value: int64(s.NumberMisscheduled)},
		workloads.Counter{Field: "desiredNumberScheduled", Value: int64(s.DesiredNumberScheduled)},
		workloads.Counter{Field: "numberReady", Value: int64(s.NumberReady)},
		workloads.Counter{Field: "observedGeneration", Value: s.ObservedGeneration},
		workloads.Counter{Field: "updatedNumberScheduled", Value: int64(s.UpdatedNumberScheduled)},
		workloads.Counter{Field: "numberAvailable", Value: int64(s.NumberAvailable)},
		workloads.Counter{Field: "numberUnavailable", Value: int64(s.NumberUnavailable)})
	return append(errs, workloads.ValidateCollisionCount(s.CollisionCount, old.Status.CollisionCount,
		statusPath.Child("collisionCount"))...)
}
