package resource

import (
	"context"
	"fmt"

	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	"k8s.io/apimachinery/pkg/api/validate"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/kind"
)

// Limits of the status of a pool.
const (
	maxPoolConditions     = 10
	maxPartitionSummaries = 32
	maxShareableCapacity  = 32
	maxValidationError    = 256 // bytes
)

// ResourcePoolStatusRequests declares resourcepoolstatusrequests (KEP-5749). Such a request asks
// for the state of device pools and is answered once, in the status. No built-in controller answers
// it.
func ResourcePoolStatusRequests() *kind.Kind[*resourcev1alpha3.ResourcePoolStatusRequest] {
	type T = *resourcev1alpha3.ResourcePoolStatusRequest
	return &kind.Kind[T]{
		Plural:        "resourcepoolstatusrequests",
		ClusterScoped: true,
		Default: func(r T) {
			if r.Spec.Limit == nil {
				r.Spec.Limit = new(resourcev1alpha3.ResourcePoolStatusRequestLimitDefault)
			}
		},
		Validate: func(ctx context.Context, r T) field.ErrorList {
			return validatePoolQuestion(ctx, &r.Spec, field.NewPath("spec"))
		},
		ValidateUpdate: func(_ context.Context, r, old T) field.ErrorList {
			return apivalidation.ValidateImmutableField(r.Spec, old.Spec, field.NewPath("spec"))
		},
		Table: kind.Table[T]{
			Columns: []kind.Column{
				kind.NameColumn(),
				{Name: "Driver", Description: "Driver of the requested pools."},
				{Name: "Pools", Type: "integer", Description: "Number of pools that were found."},
				kind.AgeColumn(),
			},
			Row: func(r T) []any {
				var pools any
				if s := r.Status; s != nil && s.PoolCount != nil {
					pools = int64(*s.PoolCount)
				}
				return []any{r.Name, r.Spec.Driver, pools, kind.Age(r)}
			},
		},
		Status: &kind.Status[T]{
			Prepare:     func(_ context.Context, r, old T) { metav1.ResetObjectMetaForStatus(r, old) },
			ResetFields: []string{"metadata", "spec"},
			Validate: func(ctx context.Context, r, old T) field.ErrorList {
				at := field.NewPath("status")
				if old.Status != nil {
					return apivalidation.ValidateImmutableField(r.Status, old.Status, at)
				}
				if r.Status == nil {
					return nil
				}
				return validatePoolAnswer(ctx, r.Status, at)
			},
		},
		RequireResourceVersion: true,
		Quirks:                 kind.Quirks{NoStatusTable: true, ReturnDeleted: true},
	}
}

func validatePoolQuestion(
	ctx context.Context, s *resourcev1alpha3.ResourcePoolStatusRequestSpec, at *field.Path,
) field.ErrorList {
	errs := validateDriver(ctx, s.Driver, at.Child("driver"))
	errs = append(errs, validate.ResourcePoolName(ctx, asCreate(), at.Child("poolName"),
		s.PoolName, nil)...)
	if l, limit := s.Limit, resourcev1alpha3.ResourcePoolStatusRequestLimitMax; l != nil &&
		(*l < 1 || *l > limit) {
		errs = append(errs, field.Invalid(at.Child("limit"), *l,
			fmt.Sprintf("must be between 1 and %d", limit)))
	}
	if s.DefaultPartitionTypeAttribute != nil {
		errs = append(errs, field.Forbidden(at.Child("defaultPartitionTypeAttribute"),
			"the feature DRAPartitionableDevicesType is off"))
	}
	return errs
}

func validateDriver(ctx context.Context, name string, at *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	return validate.LongNameCaseless(ctx, asCreate(), at, &name, nil)
}

func validatePoolAnswer(
	ctx context.Context, s *resourcev1alpha3.ResourcePoolStatusRequestStatus, at *field.Path,
) field.ErrorList {
	errs := requireCount(s.PoolCount, at.Child("poolCount"))
	if limit := int(resourcev1alpha3.ResourcePoolStatusRequestLimitMax); len(s.Pools) > limit {
		errs = append(errs, field.TooMany(at.Child("pools"), len(s.Pools), limit))
	} else {
		for i := range s.Pools {
			errs = append(errs, validatePool(ctx, &s.Pools[i], at.Child("pools").Index(i))...)
		}
	}
	conditions := at.Child("conditions")
	if len(s.Conditions) > maxPoolConditions {
		errs = append(errs, field.TooMany(conditions, len(s.Conditions), maxPoolConditions))
	}
	return append(errs, metavalidation.ValidateConditions(s.Conditions, conditions)...)
}

func validatePool(
	ctx context.Context, p *resourcev1alpha3.PoolStatus, at *field.Path,
) field.ErrorList {
	errs := validateDriver(ctx, p.Driver, at.Child("driver"))
	if p.PoolName == "" {
		errs = append(errs, field.Required(at.Child("poolName"), ""))
	} else {
		errs = append(errs, validate.ResourcePoolName(ctx, asCreate(), at.Child("poolName"),
			&p.PoolName, nil)...)
	}
	switch {
	case p.Generation == 0:
		errs = append(errs, field.Required(at.Child("generation"), ""))
	case p.Generation < 0:
		errs = append(errs, field.Invalid(at.Child("generation"), p.Generation, "must not be negative"))
	}
	if c := p.ResourceSliceCount; c != nil && *c < 1 {
		errs = append(errs, field.Invalid(at.Child("resourceSliceCount"), *c, "must be at least 1"))
	}
	for name, count := range map[string]*int32{
		"totalDevices": p.TotalDevices, "allocatedDevices": p.AllocatedDevices,
		"availableDevices": p.AvailableDevices, "unavailableDevices": p.UnavailableDevices,
	} {
		if count != nil {
			errs = append(errs, requireCount(count, at.Child(name))...)
		}
	}
	errs = append(errs, validate.LongName(ctx, asCreate(), at.Child("nodeName"), p.NodeName, nil)...)
	if v := p.ValidationError; v != nil && len(*v) > maxValidationError {
		errs = append(errs, field.TooLong(at.Child("validationError"),
			"" /* not the text */, maxValidationError))
	}
	errs = append(errs, validatePartitions(p.PartitionSummary, at.Child("partitionSummary"))...)
	if s := p.ShareableSummary; s != nil {
		errs = append(errs, validateShareable(s, at.Child("shareableSummary"))...)
	}
	return errs
}

func validatePartitions(
	list []resourcev1alpha3.PartitionTypeStatus, at *field.Path,
) field.ErrorList {
	if len(list) > maxPartitionSummaries {
		return field.ErrorList{field.TooMany(at, len(list), maxPartitionSummaries)}
	}
	var errs field.ErrorList
	seen := map[[2]string]bool{}
	for i, p := range list {
		at, key := at.Index(i), [2]string{p.Attribute, p.Type}
		if seen[key] {
			errs = append(errs, field.Duplicate(at, p.Attribute+" "+p.Type))
		}
		seen[key] = true
		if p.Attribute == "" {
			errs = append(errs, field.Required(at.Child("attribute"), ""))
		}
		if p.Type == "" {
			errs = append(errs, field.Required(at.Child("type"), ""))
		}
		errs = append(errs, requireCount(p.Total, at.Child("total"))...)
		errs = append(errs, requireCount(p.Allocatable, at.Child("allocatable"))...)
	}
	return errs
}

func validateShareable(s *resourcev1alpha3.ShareableSummaryStatus, at *field.Path) field.ErrorList {
	errs := requireCount(s.FullyAvailableDevices, at.Child("fullyAvailableDevices"))
	errs = append(errs, requireCount(s.PartiallyAvailableDevices,
		at.Child("partiallyAvailableDevices"))...)
	capacity := at.Child("capacity")
	if len(s.Capacity) > maxShareableCapacity {
		return append(errs, field.TooMany(capacity, len(s.Capacity), maxShareableCapacity))
	}
	for i, c := range s.Capacity {
		for name, missing := range map[string]bool{
			"name":      c.Name == "",
			"total":     c.Total == nil,
			"consumed":  c.Consumed == nil,
			"available": c.Available == nil,
		} {
			if missing {
				errs = append(errs, field.Required(capacity.Index(i).Child(name), ""))
			}
		}
	}
	return errs
}

func requireCount(count *int32, at *field.Path) field.ErrorList {
	switch {
	case count == nil:
		return field.ErrorList{field.Required(at, "")}
	case *count < 0:
		return field.ErrorList{field.Invalid(at, *count, "must not be negative")}
	}
	return nil
}
