package coordination

import (
	"context"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/core/internal/rules"
	"github.com/kinproc/kinproc/chain/kind"
)

// Leases declares leases. The fields strategy and preferredHolder belong to coordinated leader
// election (KEP-4355), which is off, and are dropped.
func Leases() *kind.Kind[*coordinationv1.Lease] {
	return &kind.Kind[*coordinationv1.Lease]{
		Plural: "leases",
		PrepareCreate: func(_ context.Context, l *coordinationv1.Lease) {
			l.Spec.Strategy, l.Spec.PreferredHolder = nil, nil
		},
		PrepareUpdate: func(_ context.Context, l, old *coordinationv1.Lease) {
			if old.Spec.Strategy == nil {
				l.Spec.Strategy = nil
			}
			if old.Spec.PreferredHolder == nil {
				l.Spec.PreferredHolder = nil
			}
		},
		Validate: validateLease,
		Table: kind.Table[*coordinationv1.Lease]{
			Columns: []kind.Column{
				kind.NameColumn(),
				{Name: "Holder", Description: "Who holds the lease."},
				kind.AgeColumn(),
			},
			Row: func(l *coordinationv1.Lease) []any {
				holder := ""
				if l.Spec.HolderIdentity != nil {
					holder = *l.Spec.HolderIdentity
				}
				return []any{l.Name, holder, kind.Age(l)}
			},
		},
		CreateOnUpdate:         true,
		RequireResourceVersion: true,
		Quirks:                 kind.Quirks{AnyFinalizers: true},
	}
}

func validateLease(_ context.Context, l *coordinationv1.Lease) field.ErrorList {
	var errs field.ErrorList
	spec, path := l.Spec, field.NewPath("spec")
	if spec.LeaseDurationSeconds != nil && *spec.LeaseDurationSeconds <= 0 {
		errs = append(errs, field.Invalid(path.Child("leaseDurationSeconds"), *spec.LeaseDurationSeconds,
			"must be greater than 0"))
	}
	if spec.LeaseTransitions != nil && *spec.LeaseTransitions < 0 {
		errs = append(errs, field.Invalid(path.Child("leaseTransitions"), *spec.LeaseTransitions,
			"must not be less than 0"))
	}
	strategy := coordinationv1.CoordinatedLeaseStrategy("")
	if spec.Strategy != nil {
		strategy = *spec.Strategy
		errs = append(errs, validateStrategy(string(strategy), path.Child("strategy"))...)
	}
	if spec.PreferredHolder != nil && *spec.PreferredHolder != "" && strategy == "" {
		errs = append(errs, field.Forbidden(path.Child("preferredHolder"),
			"may not be set without a strategy"))
	}
	return errs
}

// validateStrategy checks the strategy by which the holder of a lease is chosen. Like
// kube-apiserver, it reports errors for a field strategy below path.
func validateStrategy(strategy string, path *field.Path) field.ErrorList {
	path = path.Child("strategy")
	if !strings.Contains(strategy, "/") {
		if strategy == string(coordinationv1.OldestEmulationVersion) {
			return nil
		}
		return field.ErrorList{
			field.NotSupported(path, strategy, []string{string(coordinationv1.OldestEmulationVersion)}),
		}
	}
	return rules.Invalid(path, strategy, validation.IsQualifiedName(strategy))
}
