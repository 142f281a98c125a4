package flowcontrol

import (
	"context"
	"fmt"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	flowcontrolv1beta3 "k8s.io/api/flowcontrol/v1beta3"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	genericfeatures "k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/util/shufflesharding"

	"github.com/kinproc/kinproc/chain/features"
	"github.com/kinproc/kinproc/chain/kind"
)

const (
	defaultConcurrencyShares = 30
	defaultQueues            = 64
	defaultHandSize          = 8
	defaultQueueLengthLimit  = 50

	maxQueues = 10_000_000
)

// PriorityLevelConfigurations declares prioritylevelconfigurations.
func PriorityLevelConfigurations() *kind.Kind[*flowcontrolv1.PriorityLevelConfiguration] {
	type T = *flowcontrolv1.PriorityLevelConfiguration
	return &kind.Kind[T]{
		Plural:        "prioritylevelconfigurations",
		ClusterScoped: true,
		Default:       func(p T) { defaultPriorityLevel(&p.Spec) },
		Validate:      validatePriorityLevel,
		Table: kind.Table[T]{
			Columns: []kind.Column{
				kind.NameColumn(),
				{Name: "Type", Description: "Exempt or Limited."},
				{Name: "NominalConcurrencyShares", Description: "Share of the server's concurrency."},
				{Name: "Queues", Description: "Number of queues."},
				{Name: "HandSize", Description: "Number of queues that a flow is dealt."},
				{Name: "QueueLengthLimit", Description: "Number of requests that a queue holds."},
				kind.AgeColumn(),
			},
			Row: func(p T) []any {
				var shares, queues, hand, length any = "<none>", "<none>", "<none>", "<none>"
				if limited := p.Spec.Limited; limited != nil {
					if limited.NominalConcurrencyShares != nil {
						shares = int64(*limited.NominalConcurrencyShares)
					}
					if q := limited.LimitResponse.Queuing; q != nil {
						queues, hand, length = int64(q.Queues), int64(q.HandSize), int64(q.QueueLengthLimit)
					}
				}
				return []any{p.Name, string(p.Spec.Type), shares, queues, hand, length, kind.Age(p)}
			},
		},
		Status: &kind.Status[T]{
			Prepare: func(_ context.Context, p, old T) {
				restoreMetadata(&p.ObjectMeta, old.ObjectMeta)
			},
			ResetFields: []string{"metadata", "spec"},
			Validate: func(_ context.Context, p, _ T) field.ErrorList {
				return conditions(p.Status.Conditions,
					func(c flowcontrolv1.PriorityLevelConfigurationCondition) string { return string(c.Type) })
			},
		},
		Generation: true,
		Quirks:     kind.Quirks{NameOnUpdate: true},
	}
}

func defaultPriorityLevel(s *flowcontrolv1.PriorityLevelConfigurationSpec) {
	number := func(p **int32, value int32) {
		if *p == nil {
			*p = &value
		}
	}
	if e := s.Exempt; e != nil {
		number(&e.NominalConcurrencyShares, 0)
		number(&e.LendablePercent, 0)
	}
	l := s.Limited
	if l == nil {
		return
	}
	number(&l.NominalConcurrencyShares, defaultConcurrencyShares)
	number(&l.LendablePercent, 0)
	if q := l.LimitResponse.Queuing; q != nil {
		for p, value := range map[*int32]int32{
			&q.Queues:           defaultQueues,
			&q.HandSize:         defaultHandSize,
			&q.QueueLengthLimit: defaultQueueLengthLimit,
		} {
			if *p == 0 {
				*p = value
			}
		}
	}
}

func validatePriorityLevel(
	_ context.Context, p *flowcontrolv1.PriorityLevelConfiguration,
) field.ErrorList {
	spec, at := &p.Spec, field.NewPath("spec")
	var errs field.ErrorList
	if _, ok := p.Annotations[flowcontrolv1beta3.PriorityLevelPreserveZeroConcurrencySharesKey]; ok {
		errs = append(errs, field.Forbidden(field.NewPath("metadata", "annotations"),
			"the v1beta3 annotation is not supported in this version: set nominalConcurrencyShares instead"))
	}
	isExempt := p.Name == flowcontrolv1.PriorityLevelConfigurationNameExempt
	if isExempt != (spec.Type == flowcontrolv1.PriorityLevelEnablementExempt) {
		errs = append(errs, field.Invalid(at.Child("type"), spec.Type,
			"must be Exempt for the priority level exempt, and for no other"))
	}
	const limited, exempt = flowcontrolv1.PriorityLevelEnablementLimited,
		flowcontrolv1.PriorityLevelEnablementExempt
	if spec.Limited != nil && excludes(spec.Type, limited, exempt) {
		errs = append(errs, field.Forbidden(at.Child("limited"), "may only be set for type Limited"))
	}
	if spec.Exempt != nil && excludes(spec.Type, exempt, limited) {
		errs = append(errs, field.Forbidden(at.Child("exempt"), "may only be set for type Exempt"))
	}
	if spec.Limited != nil && (spec.Type == limited || declarative()) {
		errs = append(errs, validateParts(&spec.Limited.LimitResponse,
			at.Child("limited", "limitResponse"))...)
	}
	switch spec.Type {
	case flowcontrolv1.PriorityLevelEnablementExempt:
		if e := spec.Exempt; e != nil {
			errs = append(errs, notNegative(e.NominalConcurrencyShares,
				at.Child("exempt", "nominalConcurrencyShares"))...)
			errs = append(errs, percent(e.LendablePercent, at.Child("exempt", "lendablePercent"))...)
		}
	case flowcontrolv1.PriorityLevelEnablementLimited:
		if spec.Limited == nil {
			errs = append(errs, field.Required(at.Child("limited"), "required for type Limited"))
		} else {
			errs = append(errs, validateLimited(spec.Limited, at.Child("limited"))...)
		}
	case "":
		errs = append(errs, field.Required(at.Child("type"), ""))
	default:
		types := sets.New(flowcontrolv1.PriorityLevelEnablementExempt,
			flowcontrolv1.PriorityLevelEnablementLimited)
		errs = append(errs, field.NotSupported(at.Child("type"), spec.Type, sets.List(types)))
	}
	for _, fixed := range bootstrap.MandatoryPriorityLevelConfigurations {
		if fixed.Name == p.Name && !asFixed(spec, &fixed.Spec) {
			errs = append(errs, field.Invalid(at, *spec, "the spec of "+p.Name+" is fixed"))
		}
	}
	return append(errs, conditions(p.Status.Conditions,
		func(c flowcontrolv1.PriorityLevelConfigurationCondition) string { return string(c.Type) })...)
}

// excludes reports whether a value of type is may not have the field of type own. Unless
// declarative validation is enforced, the field is refused only for the other valid type.
func excludes[T ~string](is, own, other T) bool {
	if declarative() {
		return is != own
	}
	return is == other
}

func declarative() bool { return features.Enabled(genericfeatures.DeclarativeValidationBeta) }

// asFixed reports whether spec is the fixed spec of a mandatory level. Operators may change the
// field exempt of the exempt level, so that field is ignored.
func asFixed(spec, fixed *flowcontrolv1.PriorityLevelConfigurationSpec) bool {
	same := *spec
	if fixed.Exempt != nil {
		same.Exempt = fixed.Exempt
	}
	return equality.Semantic.DeepEqual(&same, fixed)
}

func validateLimited(
	l *flowcontrolv1.LimitedPriorityLevelConfiguration, at *field.Path,
) field.ErrorList {
	errs := notNegative(l.NominalConcurrencyShares, at.Child("nominalConcurrencyShares"))
	errs = append(errs, percent(l.LendablePercent, at.Child("lendablePercent"))...)
	errs = append(errs, notNegative(l.BorrowingLimitPercent, at.Child("borrowingLimitPercent"))...)
	at = at.Child("limitResponse")
	switch l.LimitResponse.Type {
	case flowcontrolv1.LimitResponseTypeReject, "":
	case flowcontrolv1.LimitResponseTypeQueue:
		if l.LimitResponse.Queuing != nil {
			errs = append(errs, validateQueuing(l.LimitResponse.Queuing, at.Child("queuing"))...)
		}
	default:
		types := sets.New(flowcontrolv1.LimitResponseTypeQueue, flowcontrolv1.LimitResponseTypeReject)
		errs = append(errs, field.NotSupported(at.Child("type"), l.LimitResponse.Type, sets.List(types)))
	}
	return errs
}

// validateParts checks that a response has the parts that belong to its type, even if the priority
// level may not have a response.
func validateParts(r *flowcontrolv1.LimitResponse, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if r.Type == "" {
		errs = append(errs, field.Required(at.Child("type"), ""))
	}
	switch queues := flowcontrolv1.LimitResponseTypeQueue; {
	case r.Type == queues && r.Queuing == nil:
		errs = append(errs, field.Required(at.Child("queuing"), "required for type Queue"))
	case r.Queuing != nil && excludes(r.Type, queues, flowcontrolv1.LimitResponseTypeReject):
		errs = append(errs, field.Forbidden(at.Child("queuing"), "may only be set for type Queue"))
	}
	return errs
}

func validateQueuing(q *flowcontrolv1.QueuingConfiguration, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if q.QueueLengthLimit <= 0 {
		errs = append(errs, field.Invalid(at.Child("queueLengthLimit"),
			q.QueueLengthLimit, "must be positive"))
	}
	if q.Queues <= 0 || q.Queues > maxQueues {
		errs = append(errs, field.Invalid(at.Child("queues"), q.Queues,
			fmt.Sprintf("must be between 1 and %d", maxQueues)))
	}
	hand := at.Child("handSize")
	switch {
	case q.HandSize <= 0:
		errs = append(errs, field.Invalid(hand, q.HandSize, "must be positive"))
	case q.HandSize > q.Queues:
		errs = append(errs, field.Invalid(hand, q.HandSize, "must not be greater than queues"))
	case shufflesharding.RequiredEntropyBits(int(q.Queues), int(q.HandSize)) >
		shufflesharding.MaxHashBits:
		errs = append(errs, field.Invalid(hand, q.HandSize,
			fmt.Sprintf("with %d queues, shuffle sharding would need more than %d bits of entropy",
				q.Queues, shufflesharding.MaxHashBits)))
	}
	return errs
}

func notNegative(n *int32, at *field.Path) field.ErrorList {
	if n != nil && *n < 0 {
		return field.ErrorList{field.Invalid(at, *n, "must be a non-negative integer")}
	}
	return nil
}

func percent(n *int32, at *field.Path) field.ErrorList {
	if n != nil && (*n < 0 || *n > 100) {
		return field.ErrorList{field.Invalid(at, *n, "must be between 0 and 100")}
	}
	return nil
}
