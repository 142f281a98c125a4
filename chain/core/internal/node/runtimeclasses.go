package node

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/core/internal/rules"
	"github.com/kinproc/kinproc/chain/core/internal/rules/nodeselectors"
	"github.com/kinproc/kinproc/chain/core/internal/rules/podspec"
	"github.com/kinproc/kinproc/chain/kind"
)

// RuntimeClasses declares runtimeclasses.
func RuntimeClasses() *kind.Kind[*nodev1.RuntimeClass] {
	return &kind.Kind[*nodev1.RuntimeClass]{
		Plural:        "runtimeclasses",
		ClusterScoped: true,
		Validate:      validateRuntimeClass,
		ValidateUpdate: func(ctx context.Context, c, old *nodev1.RuntimeClass) field.ErrorList {
			return append(validateRuntimeClass(ctx, c),
				apivalidation.ValidateImmutableField(c.Handler, old.Handler, field.NewPath("handler"))...)
		},
		Table: kind.Table[*nodev1.RuntimeClass]{
			Columns: []kind.Column{
				kind.NameColumn(),
				{Name: "Handler", Description: "Name of the configuration in the container runtime."},
				kind.AgeColumn(),
			},
			Row: func(c *nodev1.RuntimeClass) []any { return []any{c.Name, c.Handler, kind.Age(c)} },
		},
		Warnings:               warnings,
		CreateOnUpdate:         true,
		RequireResourceVersion: true,
		Quirks:                 kind.Quirks{NameOnUpdate: true, AnyFinalizers: true},
	}
}

func validateRuntimeClass(_ context.Context, c *nodev1.RuntimeClass) field.ErrorList {
	var errs field.ErrorList
	if handler := field.NewPath("handler"); c.Handler == "" {
		errs = append(errs, field.Required(handler, "must name a configuration of the container runtime"))
	} else {
		errs = append(errs, rules.Invalid(handler, c.Handler,
			apivalidation.NameIsDNSLabel(c.Handler, false))...)
	}
	if c.Overhead != nil {
		limits := &corev1.ResourceRequirements{Limits: c.Overhead.PodFixed}
		errs = append(errs, podspec.ValidateResources(limits, nil,
			field.NewPath("overhead"), podspec.Options{})...)
	}
	if s := c.Scheduling; s != nil {
		path := field.NewPath("scheduling")
		errs = append(errs, metav1validation.ValidateLabels(s.NodeSelector,
			path.Child("nodeSelector"))...)
		errs = append(errs, validateTolerations(s.Tolerations, path.Child("tolerations"))...)
	}
	return errs
}

// validateTolerations requires the tolerations to be distinct, because server-side apply merges
// them as a map. TolerationSeconds is not part of the key.
func validateTolerations(list []corev1.Toleration, path *field.Path) field.ErrorList {
	errs := podspec.ValidateTolerations(list, path, podspec.Options{})
	seen := map[corev1.Toleration]bool{}
	for i, t := range list {
		t.TolerationSeconds = nil
		if seen[t] {
			errs = append(errs, field.Duplicate(path.Index(i), t))
		}
		seen[t] = true
	}
	return errs
}

func warnings(_ context.Context, c, _ *nodev1.RuntimeClass) []string {
	if c.Scheduling == nil {
		return nil
	}
	var warnings []string
	for _, key := range slices.Sorted(maps.Keys(c.Scheduling.NodeSelector)) {
		if advice, deprecated := nodeselectors.DeprecatedLabel(key); deprecated {
			warnings = append(warnings, field.NewPath("scheduling", "nodeSelector").String()+": "+advice)
		}
	}
	return warnings
}
