package autoscaling

import (
	"errors"
	"fmt"
	"slices"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	apipath "k8s.io/apimachinery/pkg/api/validation/path"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/core/internal/rules"
	"github.com/kinproc/kinproc/chain/core/internal/rules/quantities"
	"github.com/kinproc/kinproc/chain/features"
)

const (
	// maxPeriod is the maximum period of a scaling policy, in seconds.
	maxPeriod = 1800
	// maxWindow is the maximum stabilization window, in seconds.
	maxWindow = 3600
)

var (
	metricTypes = sets.New(autoscalingv2.ContainerResourceMetricSourceType,
		autoscalingv2.ExternalMetricSourceType, autoscalingv2.ObjectMetricSourceType,
		autoscalingv2.PodsMetricSourceType, autoscalingv2.ResourceMetricSourceType)
	targetTypes = sets.New(autoscalingv2.UtilizationMetricType, autoscalingv2.ValueMetricType,
		autoscalingv2.AverageValueMetricType)
	selectTypes = sets.New(autoscalingv2.DisabledPolicySelect, autoscalingv2.MaxChangePolicySelect,
		autoscalingv2.MinChangePolicySelect)
	scalingTypes = sets.New(autoscalingv2.PercentScalingPolicy, autoscalingv2.PodsScalingPolicy)
)

// validate validates an autoscaler. old is nil on create. Values stored before a rule existed may
// stay.
func validate(a, old *autoscalingv2.HorizontalPodAutoscaler) field.ErrorList {
	var errs field.ErrorList
	spec, path := &a.Spec, field.NewPath("spec")

	least := int32(1)
	if features.Enabled(features.HPAScaleToZero) ||
		old != nil && old.Spec.MinReplicas != nil && *old.Spec.MinReplicas == 0 {
		least = 0
	}
	if spec.MinReplicas != nil && *spec.MinReplicas < least {
		errs = append(errs, field.Invalid(path.Child("minReplicas"), *spec.MinReplicas,
			fmt.Sprintf("must be greater than or equal to %d", least)))
	}
	switch {
	case spec.MaxReplicas == 0:
		errs = append(errs, field.Required(path.Child("maxReplicas"),
			"must be set and greater than 0"))
	case spec.MaxReplicas < 0:
		errs = append(errs, field.Invalid(path.Child("maxReplicas"), spec.MaxReplicas,
			"must be greater than 0"))
	}
	if spec.MinReplicas != nil && spec.MaxReplicas < *spec.MinReplicas {
		errs = append(errs, field.Invalid(path.Child("maxReplicas"), spec.MaxReplicas,
			"must be greater than or equal to `minReplicas`"))
	}

	target := spec.ScaleTargetRef
	errs = append(errs, validateReference(target, path.Child("scaleTargetRef"))...)
	if old == nil || old.Spec.ScaleTargetRef.APIVersion != target.APIVersion ||
		old.Spec.ScaleTargetRef.Kind != target.Kind {
		// ReplicationController is the only kind with scale in the core group, whose name is empty.
		errs = append(errs, validateAPIVersion(target, target.Kind == "ReplicationController",
			path.Child("scaleTargetRef"))...)
	}
	errs = append(errs, validateMetrics(spec, path.Child("metrics"),
		old == nil || !hasBadReference(old.Spec.Metrics))...)
	if behavior := spec.Behavior; behavior != nil {
		errs = append(errs, validateRules(behavior.ScaleUp, path.Child("behavior", "scaleUp"))...)
		errs = append(errs, validateRules(behavior.ScaleDown, path.Child("behavior", "scaleDown"))...)
	}
	return errs
}

func validateReference(
	ref autoscalingv2.CrossVersionObjectReference, path *field.Path,
) field.ErrorList {
	return append(validateSegment(ref.Kind, path.Child("kind")),
		validateSegment(ref.Name, path.Child("name"))...)
}

// validateSegment requires a name that can be a segment of a URL path.
func validateSegment(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return rules.Invalid(path, name, apipath.IsValidPathSegmentName(name))
}

func validateAPIVersion(
	ref autoscalingv2.CrossVersionObjectReference, coreToo bool, path *field.Path,
) field.ErrorList {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err == nil && gv.Group == "" && !coreToo {
		err = errors.New("must specify an API group")
	}
	if err != nil {
		return field.ErrorList{field.Invalid(path.Child("apiVersion"), ref.APIVersion, err.Error())}
	}
	return nil
}

func hasBadReference(metrics []autoscalingv2.MetricSpec) bool {
	return slices.ContainsFunc(metrics, func(m autoscalingv2.MetricSpec) bool {
		return m.Type == autoscalingv2.ObjectMetricSourceType && m.Object != nil &&
			len(validateAPIVersion(m.Object.DescribedObject, true, nil)) > 0
	})
}

func validateMetrics(
	spec *autoscalingv2.HorizontalPodAutoscalerSpec, path *field.Path, checkAPIVersions bool,
) field.ErrorList {
	var errs field.ErrorList
	countsPods := true
	for i := range spec.Metrics {
		m := &spec.Metrics[i]
		errs = append(errs, validateMetric(m, path.Index(i), checkAPIVersions)...)
		if m.Type == autoscalingv2.ObjectMetricSourceType ||
			m.Type == autoscalingv2.ExternalMetricSourceType {
			countsPods = false
		}
	}
	if spec.MinReplicas != nil && *spec.MinReplicas == 0 && countsPods {
		errs = append(errs, field.Forbidden(path,
			"must include an Object or External metric when minReplicas is 0"))
	}
	return errs
}

func validateMetric(
	m *autoscalingv2.MetricSpec, path *field.Path, checkAPIVersions bool,
) field.ErrorList {
	var errs field.ErrorList
	if m.Type == "" {
		errs = append(errs, field.Required(path.Child("type"), "must specify a metric source type"))
	}
	if !metricTypes.Has(m.Type) {
		errs = append(errs, field.NotSupported(path.Child("type"), m.Type, sets.List(metricTypes)))
	}
	sources := []struct {
		of       autoscalingv2.MetricSourceType
		field    string
		set      bool
		validate func(path *field.Path) field.ErrorList
	}{
		{
			autoscalingv2.ObjectMetricSourceType, "object", m.Object != nil,
			func(p *field.Path) field.ErrorList {
				return validateObject(m.Object, p, checkAPIVersions)
			},
		},
		{
			autoscalingv2.ExternalMetricSourceType, "external", m.External != nil,
			func(p *field.Path) field.ErrorList {
				return validateExternal(m.External, p)
			},
		},
		{autoscalingv2.PodsMetricSourceType, "pods", m.Pods != nil, func(p *field.Path) field.ErrorList {
			return validatePods(m.Pods, p)
		}},
		{
			autoscalingv2.ResourceMetricSourceType, "resource", m.Resource != nil,
			func(p *field.Path) field.ErrorList {
				return validateResource(string(m.Resource.Name), m.Resource.Target, p)
			},
		},
		{
			autoscalingv2.ContainerResourceMetricSourceType, "containerResource", m.ContainerResource != nil,
			func(p *field.Path) field.ErrorList {
				return validateContainerResource(m.ContainerResource, p)
			},
		},
	}
	set := 0
	for _, s := range sources {
		if s.set {
			set++
		}
	}
	first := true
	for _, s := range sources {
		at := path.Child(s.field)
		switch {
		case !s.set && s.of == m.Type:
			errs = append(errs, field.Required(at, "must be set for metrics of this type"))
		case !s.set:
		default:
			// Validate only one source: the first, if several are set.
			if first {
				errs = append(errs, s.validate(at)...)
				first = false
			}
			if set > 1 && s.of != m.Type {
				errs = append(errs, field.Forbidden(at, "must populate the given metric source only"))
			}
		}
	}
	return errs
}

func validateObject(
	s *autoscalingv2.ObjectMetricSource, path *field.Path, checkAPIVersion bool,
) field.ErrorList {
	errs := validateReference(s.DescribedObject, path.Child("describedObject"))
	if checkAPIVersion {
		errs = append(errs, validateAPIVersion(s.DescribedObject, true, path.Child("describedObject"))...)
	}
	errs = append(errs, validateSegment(s.Metric.Name, path.Child("metric", "name"))...)
	errs = append(errs, validateTarget(s.Target, path.Child("target"))...)
	if s.Target.Value == nil && s.Target.AverageValue == nil {
		errs = append(errs, field.Required(path.Child("target", "averageValue"),
			"must specify a target value or averageValue"))
	}
	return errs
}

func validateExternal(s *autoscalingv2.ExternalMetricSource, path *field.Path) field.ErrorList {
	errs := validateSegment(s.Metric.Name, path.Child("metric", "name"))
	errs = append(errs, validateTarget(s.Target, path.Child("target"))...)
	if s.Target.Value == nil && s.Target.AverageValue == nil {
		errs = append(errs, field.Required(path.Child("target", "averageValue"),
			"must specify a target value or averageValue"))
	}
	if s.Target.Value != nil && s.Target.AverageValue != nil {
		errs = append(errs, field.Forbidden(path.Child("target", "value"),
			"may not be set together with averageValue"))
	}
	return errs
}

func validatePods(s *autoscalingv2.PodsMetricSource, path *field.Path) field.ErrorList {
	errs := validateSegment(s.Metric.Name, path.Child("metric", "name"))
	errs = append(errs, validateTarget(s.Target, path.Child("target"))...)
	if s.Target.AverageValue == nil {
		errs = append(errs, field.Required(path.Child("target", "averageValue"),
			"must specify a target averageValue"))
	}
	return errs
}

func validateResource(
	name string, target autoscalingv2.MetricTarget, path *field.Path,
) field.ErrorList {
	var errs field.ErrorList
	if name == "" {
		errs = append(errs, field.Required(path.Child("name"), "must specify a resource name"))
	}
	errs = append(errs, validateTarget(target, path.Child("target"))...)
	if target.AverageUtilization == nil && target.AverageValue == nil {
		errs = append(errs, field.Required(path.Child("target", "averageUtilization"),
			"must set either a target raw value or a target utilization"))
	}
	if target.AverageUtilization != nil && target.AverageValue != nil {
		errs = append(errs, field.Forbidden(path.Child("target", "averageValue"),
			"may not be set together with averageUtilization"))
	}
	return errs
}

func validateContainerResource(
	s *autoscalingv2.ContainerResourceMetricSource, path *field.Path,
) field.ErrorList {
	errs := validateResource(string(s.Name), s.Target, path)
	if s.Name != "" {
		errs = append(errs, quantities.ValidateContainerResourceName(s.Name, path.Child("name"))...)
	}
	if s.Container == "" {
		return append(errs, field.Required(path.Child("container"), "must specify a container name"))
	}
	return append(errs, rules.Invalid(path.Child("container"), s.Container,
		validation.IsDNS1123Label(s.Container))...)
}

func validateTarget(t autoscalingv2.MetricTarget, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if t.Type == "" {
		errs = append(errs, field.Required(path.Child("type"), "must specify a target type"))
	}
	if !targetTypes.Has(t.Type) {
		errs = append(errs, field.Invalid(path.Child("type"), t.Type,
			fmt.Sprintf("must be one of %v", sets.List(targetTypes))))
	}
	if t.Value != nil {
		errs = append(errs, quantities.ValidatePositiveQuantity(*t.Value, path.Child("value"))...)
	}
	if t.AverageValue != nil {
		errs = append(errs, quantities.ValidatePositiveQuantity(*t.AverageValue,
			path.Child("averageValue"))...)
	}
	if t.AverageUtilization != nil && *t.AverageUtilization < 1 {
		errs = append(errs, field.Invalid(path.Child("averageUtilization"), *t.AverageUtilization,
			"must be greater than 0"))
	}
	return errs
}

func validateRules(r *autoscalingv2.HPAScalingRules, path *field.Path) field.ErrorList {
	if r == nil {
		return nil
	}
	var errs field.ErrorList
	if w := r.StabilizationWindowSeconds; w != nil && (*w < 0 || *w > maxWindow) {
		errs = append(errs, field.Invalid(path.Child("stabilizationWindowSeconds"), *w,
			fmt.Sprintf("must be between 0 and %d", maxWindow)))
	}
	if r.SelectPolicy != nil && !selectTypes.Has(*r.SelectPolicy) {
		errs = append(errs, field.NotSupported(path.Child("selectPolicy"), *r.SelectPolicy,
			sets.List(selectTypes)))
	}
	if len(r.Policies) == 0 {
		errs = append(errs, field.Required(path.Child("policies"), "must specify at least one policy"))
	}
	for i, p := range r.Policies {
		at := path.Child("policies").Index(i)
		if !scalingTypes.Has(p.Type) {
			errs = append(errs, field.NotSupported(at.Child("type"), p.Type, sets.List(scalingTypes)))
		}
		if p.Value <= 0 {
			errs = append(errs, field.Invalid(at.Child("value"), p.Value, "must be greater than 0"))
		}
		if p.PeriodSeconds <= 0 || p.PeriodSeconds > maxPeriod {
			errs = append(errs, field.Invalid(at.Child("periodSeconds"), p.PeriodSeconds,
				fmt.Sprintf("must be between 1 and %d", maxPeriod)))
		}
	}
	if r.Tolerance != nil {
		errs = append(errs, quantities.ValidateNonnegativeQuantity(*r.Tolerance,
			path.Child("tolerance"))...)
	}
	return errs
}
