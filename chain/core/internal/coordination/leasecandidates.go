package coordination

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1alpha2 "k8s.io/api/coordination/v1alpha2"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/kinproc/kinproc/chain/kind"
)

// LeaseCandidates declares leasecandidates, which are part of coordinated leader election
// (KEP-4355).
func LeaseCandidates() *kind.Kind[*coordinationv1beta1.LeaseCandidate] {
	return &kind.Kind[*coordinationv1beta1.LeaseCandidate]{
		Plural: "leasecandidates",
		Versions: []kind.Version{
			kind.ServedAsSame[*coordinationv1alpha2.LeaseCandidate, *coordinationv1beta1.LeaseCandidate](),
		},
		Name:     func(name string, _ bool) []string { return validation.IsConfigMapKey(name) },
		Validate: validateCandidate,
		ValidateUpdate: func(
			ctx context.Context, c, old *coordinationv1beta1.LeaseCandidate,
		) field.ErrorList {
			return append(validateCandidate(ctx, c),
				apivalidation.ValidateImmutableField(c.Spec.LeaseName, old.Spec.LeaseName,
					field.NewPath("spec", "leaseName"))...)
		},
		Table: kind.Table[*coordinationv1beta1.LeaseCandidate]{
			Columns: []kind.Column{
				kind.NameColumn(),
				{Name: "LeaseName", Description: "The lease that the candidate wants to hold."},
				{Name: "BinaryVersion", Description: "Version of the candidate's program."},
				{Name: "EmulationVersion", Description: "Version that the candidate emulates."},
				kind.AgeColumn(),
			},
			Row: func(c *coordinationv1beta1.LeaseCandidate) []any {
				return []any{
					c.Name, c.Spec.LeaseName, c.Spec.BinaryVersion, c.Spec.EmulationVersion, kind.Age(c),
				}
			},
		},
		RequireResourceVersion: true,
		Quirks:                 kind.Quirks{AnyFinalizers: true},
	}
}

func validateCandidate(_ context.Context, c *coordinationv1beta1.LeaseCandidate) field.ErrorList {
	var errs field.ErrorList
	spec, path := c.Spec, field.NewPath("spec")
	if spec.LeaseName == "" {
		errs = append(errs, field.Required(path.Child("leaseName"), "must name a lease"))
	}
	parse := func(value, name string) *version.Version {
		if value == "" {
			return nil
		}
		v, err := version.ParseSemantic(value)
		if err != nil {
			errs = append(errs, field.Invalid(path.Child(name), value, "must be a semantic version"))
		}
		return v
	}
	binary, emulation := parse(spec.BinaryVersion, "binaryVersion"),
		parse(spec.EmulationVersion, "emulationVersion")
	if spec.BinaryVersion == "" {
		errs = append(errs, field.Required(path.Child("binaryVersion"),
			"must be the version of the candidate's program"))
	}
	if binary != nil && emulation != nil && binary.LessThan(emulation) {
		errs = append(errs, field.Invalid(path.Child("binaryVersion"), spec.BinaryVersion,
			"must not be older than emulationVersion"))
	}
	if spec.Strategy == "" {
		return append(errs, field.Required(path.Child("strategy"),
			"must say how the holder of the lease is chosen"))
	}
	if spec.Strategy == coordinationv1.OldestEmulationVersion && emulation == nil {
		errs = append(errs, field.Required(path.Child("emulationVersion"),
			"required by the strategy OldestEmulationVersion"))
	}
	return append(errs, validateStrategy(string(spec.Strategy), path.Child("strategy"))...)
}
