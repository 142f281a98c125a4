package resource

import (
	"context"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/core/kind"
	"github.com/kinproc/kinproc/chain/core/rules"
)

const (
	// adminLabel on a namespace lets claims in it have access to devices that are in use (KEP-5018).
	adminLabel = "resource.kubernetes.io/admin-access"

	maxDeviceConditions = 8
	maxDeviceData       = 10 << 10
)

// ResourceClaims declares resourceclaims.
func ResourceClaims(labels NamespaceLabels) kind.Declaration {
	type T = *resourcev1.ResourceClaim
	at := field.NewPath("spec")
	return &kind.Kind[T]{
		Plural:        "resourceclaims",
		Versions:      claimVersions(),
		ReturnDeleted: true,
		Default:       func(c T) { defaultDevices(&c.Spec.Devices) },
		Validate: func(ctx context.Context, c T) field.ErrorList {
			errs := labels.adminAccess(ctx, c.Namespace, &c.Spec.Devices, at.Child("devices"))
			errs = append(errs, resourcev1.Validate_ResourceClaimSpec(ctx, asCreate(), at, &c.Spec, nil)...)
			return once(append(errs, validateDevices(&c.Spec.Devices, false, at.Child("devices"))...))
		},
		ValidateUpdate: func(ctx context.Context, c, old T) field.ErrorList {
			errs := apivalidation.ValidateImmutableField(c.Spec, old.Spec, at)
			errs = append(errs, resourcev1.Validate_ResourceClaimSpec(ctx, asUpdate(), at, &c.Spec, &old.Spec)...)
			return once(append(errs, validateDevices(&c.Spec.Devices, true, at.Child("devices"))...))
		},
		Status: &kind.Status[T]{
			Prepare:     func(_ context.Context, c, old T) { metav1.ResetObjectMetaForStatus(c, old) },
			Validate:    validateClaimStatus,
			ResetFields: []string{"metadata", "spec"},
		},
		Table: kind.Table[T]{
			Columns: []kind.Column{
				kind.NameColumn(),
				{Name: "State", Description: "Whether devices are allocated, and in use."},
				kind.AgeColumn(),
			},
			Row: func(c T) []any { return []any{c.Name, state(c), kind.Age(c)} },
		},
	}
}

func state(c *resourcev1.ResourceClaim) string {
	var words []string
	if c.DeletionTimestamp != nil {
		words = append(words, "deleted")
	}
	switch {
	case c.Status.Allocation != nil:
		words = append(words, "allocated")
		if len(c.Status.ReservedFor) > 0 {
			words = append(words, "reserved")
		}
	case c.DeletionTimestamp == nil:
		words = append(words, "pending")
	}
	return strings.Join(words, ",")
}

// adminAccess refuses requests for it in namespaces that do not have the label.
func (l NamespaceLabels) adminAccess(ctx context.Context, namespace string, d *resourcev1.DeviceClaim, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, r := range d.Requests {
		if l == nil || r.Exactly == nil || r.Exactly.AdminAccess == nil || !*r.Exactly.AdminAccess {
			continue
		}
		at := at.Child("requests").Index(i).Child("exactly", "adminAccess")
		labels, err := l(ctx, namespace)
		switch {
		case err != nil:
			errs = append(errs, field.InternalError(at, err))
		case labels[adminLabel] != "true":
			errs = append(errs, field.Forbidden(at, "the namespace does not have the label "+adminLabel+": true"))
		}
	}
	return errs
}

func validateClaimStatus(ctx context.Context, c, old *resourcev1.ResourceClaim) field.ErrorList {
	at := field.NewPath("status")
	errs := resourcev1.Validate_ResourceClaimStatus(ctx, asUpdate(), at, &c.Status, &old.Status)
	errs = append(errs, validateReservations(c, old, at.Child("reservedFor"))...)
	if a := c.Status.Allocation; a != nil {
		if old.Status.Allocation != nil {
			errs = append(errs, apivalidation.ValidateImmutableField(a, old.Status.Allocation, at.Child("allocation"))...)
		} else {
			errs = append(errs, validateAllocation(a, requestNames(&c.Spec.Devices), at.Child("allocation"))...)
		}
	}
	return once(append(errs, validateDeviceStatuses(c, at.Child("devices"))...))
}

func validateReservations(c, old *resourcev1.ResourceClaim, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	known := sets.New(old.Status.ReservedFor...)
	added := false
	for i, r := range c.Status.ReservedFor {
		at := at.Index(i)
		if r.Resource == "" {
			errs = append(errs, field.Required(at.Child("resource"), ""))
		}
		if r.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
		}
		if r.UID == "" {
			errs = append(errs, field.Required(at.Child("uid"), ""))
		}
		added = added || !known.Has(r)
	}
	switch {
	case len(c.Status.ReservedFor) > 0 && c.Status.Allocation == nil:
		errs = append(errs, field.Forbidden(at, "nothing is allocated that could be reserved"))
	case added && c.DeletionTimestamp != nil:
		errs = append(errs, field.Forbidden(at, "a claim that is being deleted cannot be reserved"))
	}
	return errs
}

func validateAllocation(a *resourcev1.AllocationResult, names sets.Set[string], at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, r := range a.Devices.Results {
		at := at.Child("devices", "results").Index(i)
		errs = append(errs, reference(r.Request, names, at.Child("request"))...)
		errs = append(errs, driverName(r.Driver, at.Child("driver"))...)
		errs = append(errs, poolName(r.Pool, at.Child("pool"))...)
		errs = append(errs, label(r.Device, at.Child("device"))...)
	}
	for i, c := range a.Devices.Config {
		at := at.Child("devices", "config").Index(i)
		sources := sets.New(resourcev1.AllocationConfigSourceClaim, resourcev1.AllocationConfigSourceClass)
		if c.Source == "" {
			errs = append(errs, field.Required(at.Child("source"), ""))
		} else if !sources.Has(c.Source) {
			errs = append(errs, field.NotSupported(at.Child("source"), c.Source, sets.List(sources)))
		}
		errs = append(errs, references(c.Requests, names, at.Child("requests"))...)
		errs = append(errs, validateConfiguration(&c.DeviceConfiguration, at)...)
	}
	if a.NodeSelector != nil {
		errs = append(errs, rules.ValidateNodeSelector(a.NodeSelector, false, at.Child("nodeSelector"))...)
	}
	return errs
}

// validateDeviceStatuses checks what drivers say about allocated devices.
func validateDeviceStatuses(c *resourcev1.ResourceClaim, at *field.Path) field.ErrorList {
	type device struct{ driver, pool, name, share string }
	allocated := sets.New[device]()
	if a := c.Status.Allocation; a != nil {
		for _, r := range a.Devices.Results {
			d := device{driver: r.Driver, pool: r.Pool, name: r.Device}
			if r.ShareID != nil {
				d.share = string(*r.ShareID)
			}
			allocated.Insert(d)
		}
	}
	var errs field.ErrorList
	for i, s := range c.Status.Devices {
		at := at.Index(i)
		errs = append(errs, driverName(s.Driver, at.Child("driver"))...)
		errs = append(errs, poolName(s.Pool, at.Child("pool"))...)
		errs = append(errs, label(s.Device, at.Child("device"))...)
		d := device{driver: s.Driver, pool: s.Pool, name: s.Device}
		if s.ShareID != nil {
			d.share = *s.ShareID
		}
		if !allocated.Has(d) {
			errs = append(errs, field.Invalid(at, d.driver+"/"+d.pool+"/"+d.name, "must be an allocated device of the claim"))
		}
		if len(s.Conditions) > maxDeviceConditions {
			errs = append(errs, field.TooMany(at.Child("conditions"), len(s.Conditions), maxDeviceConditions))
		}
		errs = append(errs, metavalidation.ValidateConditions(s.Conditions, at.Child("conditions"))...)
		if s.Data != nil && len(s.Data.Raw) > 0 {
			errs = append(errs, object(*s.Data, maxDeviceData, at.Child("data"))...)
		}
		if n := s.NetworkData; n != nil {
			for j, ip := range n.IPs {
				errs = append(errs, validation.IsValidInterfaceAddress(at.Child("networkData", "ips").Index(j), ip)...)
			}
		}
	}
	return errs
}
