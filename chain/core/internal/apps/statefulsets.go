package apps

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/kinproc/kinproc/chain/core/internal/rules"
	"github.com/kinproc/kinproc/chain/core/internal/rules/claims"
	"github.com/kinproc/kinproc/chain/core/internal/rules/podspec"
	"github.com/kinproc/kinproc/chain/core/internal/rules/workloads"
	"github.com/kinproc/kinproc/chain/features"
	"github.com/kinproc/kinproc/chain/kind"
)

// StatefulSets declares statefulsets.
func StatefulSets() *kind.Kind[*appsv1.StatefulSet] {
	return &kind.Kind[*appsv1.StatefulSet]{
		Plural:     "statefulsets",
		ShortNames: []string{"sts"},
		Categories: []string{"all"},
		// Pod hostnames begin with the name.
		Name:    apivalidation.NameIsDNSLabel,
		Default: defaultStatefulSet,
		PrepareCreate: func(_ context.Context, s *appsv1.StatefulSet) {
			podspec.DropDisabledFields(&s.Spec.Template, nil)
			dropMaxUnavailable(s, nil)
		},
		PrepareUpdate: func(_ context.Context, s, old *appsv1.StatefulSet) {
			podspec.DropDisabledFields(&s.Spec.Template, &old.Spec.Template)
			dropMaxUnavailable(s, old)
		},
		Validate: func(_ context.Context, s *appsv1.StatefulSet) field.ErrorList {
			return validateStatefulSetSpec(&s.Spec, nil, tolerated{})
		},
		ValidateUpdate: func(_ context.Context, s, old *appsv1.StatefulSet) field.ErrorList {
			return append(validateStatefulSetSpec(&s.Spec, &old.Spec, toleratedIn(&old.Spec)),
				validateStatefulSetChange(&s.Spec, &old.Spec)...)
		},
		Table: kind.Table[*appsv1.StatefulSet]{
			Columns: append([]kind.Column{
				kind.NameColumn(),
				{Name: "Ready", Description: "Ready pods and desired pods."},
				kind.AgeColumn(),
			}, wideColumns()[:2]...),
			Row: func(s *appsv1.StatefulSet) []any {
				ready := fmt.Sprintf("%d/%d", s.Status.ReadyReplicas, ptr.Deref(s.Spec.Replicas, 0))
				return append([]any{s.Name, ready, kind.Age(s)},
					wideCells(&s.Spec.Template, s.Spec.Selector)[:2]...)
			},
		},
		Warnings: statefulSetWarnings,
		Status:   &kind.Status[*appsv1.StatefulSet]{Validate: validateStatefulSetStatus},
		Scale: &kind.Scale[*appsv1.StatefulSet]{
			Replicas:       func(s *appsv1.StatefulSet) int32 { return ptr.Deref(s.Spec.Replicas, 0) },
			SetReplicas:    func(s *appsv1.StatefulSet, n int32) { s.Spec.Replicas = &n },
			StatusReplicas: func(s *appsv1.StatefulSet) int32 { return s.Status.Replicas },
			Selector: func(s *appsv1.StatefulSet) (string, error) {
				return scaleSelector(s.Spec.Selector)
			},
		},
		Generation: true,
	}
}

func defaultStatefulSet(s *appsv1.StatefulSet) {
	podspec.SetDefaults(&s.Spec.Template.Spec)
	defaultTo(&s.Spec.Replicas, 1)
	defaultTo(&s.Spec.RevisionHistoryLimit, 10)
	if s.Spec.PodManagementPolicy == "" {
		s.Spec.PodManagementPolicy = appsv1.OrderedReadyPodManagement
	}

	strategy := &s.Spec.UpdateStrategy
	if strategy.Type == "" {
		strategy.Type = appsv1.RollingUpdateStatefulSetStrategyType
		defaultTo(&strategy.RollingUpdate, appsv1.RollingUpdateStatefulSetStrategy{})
	}
	if strategy.Type == appsv1.RollingUpdateStatefulSetStrategyType && strategy.RollingUpdate != nil {
		defaultTo(&strategy.RollingUpdate.Partition, 0)
		if features.Enabled(features.MaxUnavailableStatefulSet) {
			defaultTo(&strategy.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
		}
	}

	defaultTo(&s.Spec.PersistentVolumeClaimRetentionPolicy,
		appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{})
	retention := s.Spec.PersistentVolumeClaimRetentionPolicy
	for _, policy := range []*appsv1.PersistentVolumeClaimRetentionPolicyType{
		&retention.WhenDeleted, &retention.WhenScaled,
	} {
		if *policy == "" {
			*policy = appsv1.RetainPersistentVolumeClaimRetentionPolicyType
		}
	}

	for i := range s.Spec.VolumeClaimTemplates {
		claim := &s.Spec.VolumeClaimTemplates[i]
		claim.APIVersion, claim.Kind = "v1", "PersistentVolumeClaim"
		if claim.Status.Phase == "" {
			claim.Status.Phase = corev1.ClaimPending
		}
		claims.DefaultSpec(&claim.Spec)
	}
}

// dropMaxUnavailable clears maxUnavailable if its feature is off, unless old has it.
func dropMaxUnavailable(s, old *appsv1.StatefulSet) {
	rolling := s.Spec.UpdateStrategy.RollingUpdate
	kept := old != nil && old.Spec.UpdateStrategy.RollingUpdate != nil &&
		old.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable != nil
	if rolling != nil && !kept && !features.Enabled(features.MaxUnavailableStatefulSet) {
		rolling.MaxUnavailable = nil
	}
}

// tolerated says which parts of a stored stateful set are not validated again, because they may
// predate the rules.
type tolerated struct {
	// fixed covers serviceName and volumeClaimTemplates, which are immutable.
	fixed bool
	// template covers the pod template.
	template bool
}

func toleratedIn(old *appsv1.StatefulSetSpec) tolerated {
	t := tolerated{fixed: true}
	t.template = len(validateStatefulSetSpec(old, old, t)) > 0
	return t
}

func validateStatefulSetSpec(spec, old *appsv1.StatefulSetSpec, t tolerated) field.ErrorList {
	var errs field.ErrorList
	switch spec.PodManagementPolicy {
	case appsv1.OrderedReadyPodManagement, appsv1.ParallelPodManagement:
	default:
		errs = append(errs, field.Invalid(specPath.Child("podManagementPolicy"), spec.PodManagementPolicy,
			"must be 'OrderedReady' or 'Parallel'"))
	}
	errs = append(errs, validateStatefulSetStrategy(&spec.UpdateStrategy,
		specPath.Child("updateStrategy"))...)

	if retention := spec.PersistentVolumeClaimRetentionPolicy; retention != nil {
		path := specPath.Child("persistentVolumeClaimRetentionPolicy")
		errs = append(errs, validateRetention(retention.WhenDeleted, path.Child("whenDeleted"))...)
		errs = append(errs, validateRetention(retention.WhenScaled, path.Child("whenScaled"))...)
	}
	errs = append(errs, workloads.ValidateCounters(specPath,
		workloads.Counter{Field: "replicas", Value: int64(ptr.Deref(spec.Replicas, 0))},
		workloads.Counter{Field: "minReadySeconds", Value: int64(spec.MinReadySeconds)})...)
	if spec.Ordinals != nil {
		errs = append(errs, workloads.ValidateCounters(specPath,
			workloads.Counter{Field: "ordinals.start", Value: int64(spec.Ordinals.Start)})...)
	}
	if name := spec.ServiceName; name != "" && !t.fixed {
		errs = append(errs, rules.Invalid(specPath.Child("serviceName"), name,
			apivalidation.NameIsDNSLabel(name, false))...)
	}
	if !t.fixed {
		errs = append(errs, validateClaimTemplates(spec.VolumeClaimTemplates)...)
	}

	selector, selectorErrs := validateSelector(spec.Selector)
	errs = append(errs, selectorErrs...)
	if selector != nil {
		if !selector.Empty() {
			errs = append(errs, workloads.ValidateTemplateLabels(selector, &spec.Template, templatePath)...)
		}
		errs = append(errs, validateStatefulTemplate(spec, old, t)...)
	}
	return append(errs, workloads.ValidateEverlasting(&spec.Template, templatePath)...)
}

func validateStatefulTemplate(spec, old *appsv1.StatefulSetSpec, t tolerated) field.ErrorList {
	var oldTemplate *corev1.PodTemplateSpec
	if old != nil {
		oldTemplate = &old.Template
	}
	opts := podspec.OptionsFor(&spec.Template, oldTemplate)
	if t.template {
		return podspec.ValidateTemplateMeta(&spec.Template, templatePath, opts)
	}
	return podspec.ValidateTemplate(ordinalTemplate(spec), templatePath, opts)
}

// ordinalTemplate returns the template as validated for a pod: without hostname and subdomain,
// which the controller sets for each pod, and with a volume for each claim template, which the
// containers may mount. The claims' volumes come first and replace others of the same name.
func ordinalTemplate(spec *appsv1.StatefulSetSpec) *corev1.PodTemplateSpec {
	tmpl := spec.Template.DeepCopy()
	tmpl.Spec.Hostname, tmpl.Spec.Subdomain = "", ""
	var volumes []corev1.Volume
	claimed := sets.New[string]()
	for _, claim := range spec.VolumeClaimTemplates {
		if claimed.Has(claim.Name) {
			continue
		}
		claimed.Insert(claim.Name)
		volumes = append(volumes, corev1.Volume{Name: claim.Name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name},
		}})
	}
	for _, v := range tmpl.Spec.Volumes {
		if !claimed.Has(v.Name) {
			volumes = append(volumes, v)
		}
	}
	tmpl.Spec.Volumes = volumes
	return tmpl
}

func validateClaimTemplates(templates []corev1.PersistentVolumeClaim) field.ErrorList {
	var errs field.ErrorList
	for i := range templates {
		path := specPath.Child("volumeClaimTemplates").Index(i).Child("spec")
		errs = append(errs, claims.ValidateSpec(&templates[i].Spec, path, claims.OptionsFor(nil))...)
	}
	return errs
}

func validateRetention(
	policy appsv1.PersistentVolumeClaimRetentionPolicyType, path *field.Path,
) field.ErrorList {
	switch policy {
	case appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
		appsv1.DeletePersistentVolumeClaimRetentionPolicyType:
		return nil
	}
	return field.ErrorList{
		field.NotSupported(path, policy, []appsv1.PersistentVolumeClaimRetentionPolicyType{
			appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
			appsv1.DeletePersistentVolumeClaimRetentionPolicyType}),
	}
}

func validateStatefulSetStrategy(
	strategy *appsv1.StatefulSetUpdateStrategy, path *field.Path,
) field.ErrorList {
	rolling := strategy.RollingUpdate
	path = path.Child("rollingUpdate")
	switch strategy.Type {
	case appsv1.OnDeleteStatefulSetStrategyType:
		if rolling != nil {
			return field.ErrorList{
				field.Invalid(path, rolling, "may only be specified when updateStrategy type is RollingUpdate"),
			}
		}
		return nil
	case appsv1.RollingUpdateStatefulSetStrategyType:
		if rolling == nil {
			return nil
		}
		errs := apivalidation.ValidateNonnegativeField(int64(ptr.Deref(rolling.Partition, 0)),
			path.Child("partition"))
		if unavailable := rolling.MaxUnavailable; unavailable != nil {
			errs = append(errs, workloads.ValidateIntOrPercent(*unavailable,
				path.Child("maxUnavailable"))...)
			if workloads.IsZero(*unavailable) {
				errs = append(errs, field.Invalid(path.Child("maxUnavailable"), *unavailable, "cannot be 0"))
			}
		}
		return errs
	}
	return field.ErrorList{field.Invalid(specPath.Child("updateStrategy"), strategy.Type,
		"must be RollingUpdate or OnDelete")}
}

// validateStatefulSetChange rejects changes to the fields that are immutable.
func validateStatefulSetChange(spec, old *appsv1.StatefulSetSpec) field.ErrorList {
	immutable := func(value, old any, name string) field.ErrorList {
		return apivalidation.ValidateImmutableField(value, old, specPath.Child(name))
	}
	return slices.Concat(
		immutable(spec.Selector, old.Selector, "selector"),
		immutable(spec.VolumeClaimTemplates, old.VolumeClaimTemplates, "volumeClaimTemplates"),
		immutable(spec.ServiceName, old.ServiceName, "serviceName"),
		immutable(spec.PodManagementPolicy, old.PodManagementPolicy, "podManagementPolicy"),
	)
}

func statefulSetWarnings(_ context.Context, s, old *appsv1.StatefulSet) []string {
	var warnings []string
	if old == nil {
		warnings = podspec.TemplateWarnings(templatePath, &s.Spec.Template, nil)
	} else if s.Generation != old.Generation {
		warnings = podspec.TemplateWarnings(templatePath, &s.Spec.Template, &old.Spec.Template)
	}
	if ptr.Deref(s.Spec.RevisionHistoryLimit, 0) < 0 {
		warnings = append(warnings, specPath.Child("revisionHistoryLimit").String()+
			": a negative value keeps all revisions forever")
	}
	for i := range s.Spec.VolumeClaimTemplates {
		path := specPath.Child("volumeClaimTemplates").Index(i).Child("spec")
		warnings = append(warnings, claims.Warnings(path, &s.Spec.VolumeClaimTemplates[i].Spec)...)
	}
	return warnings
}

func validateStatefulSetStatus(_ context.Context, s, old *appsv1.StatefulSet) field.ErrorList {
	all := workloads.Counter{Field: "replicas", Value: int64(s.Status.Replicas)}
	ready := workloads.Counter{Field: "readyReplicas", Value: int64(s.Status.ReadyReplicas)}
	current := workloads.Counter{Field: "currentReplicas", Value: int64(s.Status.CurrentReplicas)}
	updated := workloads.Counter{Field: "updatedReplicas", Value: int64(s.Status.UpdatedReplicas)}
	available := workloads.Counter{
		Field: "availableReplicas",
		Value: int64(s.Status.AvailableReplicas),
	}

	errs := workloads.ValidateCounters(statusPath, all, ready, current, updated, available,
		workloads.Counter{Field: "observedGeneration", Value: s.Status.ObservedGeneration})
	errs = append(errs, workloads.ValidateAtMost(statusPath, all, ready, current,
		updated, available)...)
	errs = append(errs, workloads.ValidateAtMost(statusPath, ready, available)...)
	return append(errs, workloads.ValidateCollisionCount(s.Status.CollisionCount,
		old.Status.CollisionCount, statusPath.Child("collisionCount"))...)
}
