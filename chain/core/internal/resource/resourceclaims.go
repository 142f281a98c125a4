package resource

import (
	"context"
	"math"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kinproc/kinproc/chain/core/internal/rules/nodeselectors"
	"github.com/kinproc/kinproc/chain/core/internal/rules/volumesources"
	"github.com/kinproc/kinproc/chain/features"
	"github.com/kinproc/kinproc/chain/kind"
)

// adminLabel on a namespace allows its claims admin access to devices that are in use (KEP-5018).
const adminLabel = "resource.kubernetes.io/admin-access"

// ResourceClaims declares resourceclaims. The authorizer decides who may write which parts of the
// status; a nil authorizer allows everything.
func ResourceClaims(
	labels NamespaceLabels, auth authorizer.UnconditionalAuthorizer,
) *kind.Kind[*resourcev1.ResourceClaim] {
	type T = *resourcev1.ResourceClaim
	at := field.NewPath("spec")
	return &kind.Kind[T]{
		Plural:        "resourceclaims",
		Versions:      claimVersions(),
		Default:       func(c T) { defaultClaim(c, false) },
		PrepareCreate: func(_ context.Context, c T) { prepareClaimSpec(&c.Spec, nil) },
		PrepareUpdate: func(_ context.Context, c, old T) { prepareClaimSpec(&c.Spec, &old.Spec) },
		Validate: func(ctx context.Context, c T) field.ErrorList {
			errs := labels.adminAccess(ctx, c.Namespace, &c.Spec.Devices)
			errs = append(errs, validateDevices(&c.Spec.Devices, at.Child("devices"))...)
			return together(ctx, errs,
				resourcev1.Validate_ResourceClaimSpec(ctx, asCreate(), at, &c.Spec, nil))
		},
		ValidateUpdate: func(_ context.Context, c, old T) field.ErrorList {
			return apivalidation.ValidateImmutableField(c.Spec, old.Spec, at)
		},
		Table: kind.Table[T]{
			Columns: []kind.Column{
				kind.NameColumn(),
				{Name: "State", Description: "Whether devices are allocated and reserved."},
				kind.AgeColumn(),
			},
			Row: func(c T) []any { return []any{c.Name, state(c), kind.Age(c)} },
		},
		Status: &kind.Status[T]{
			Prepare: prepareClaimStatus,
			Validate: func(ctx context.Context, c, old T) field.ErrorList {
				errs := statusRights{auth}.check(ctx, c, old)
				errs = append(errs, labels.adminAccessGranted(ctx, c, old)...)
				errs = append(errs, validateClaimStatus(c, old)...)
				return together(ctx, errs, resourcev1.Validate_ResourceClaimStatus(ctx, asUpdate(),
					field.NewPath("status"), &c.Status, &old.Status))
			},
			ResetFields: []string{"metadata", "spec"},
		},
		Quirks: kind.Quirks{NameOnUpdate: true, NoStatusTable: true, ReturnDeleted: true},
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

func defaultClaim(c *resourcev1.ResourceClaim, v1beta1 bool) {
	defaultDevices(&c.Spec.Devices, v1beta1)
	if a := c.Status.Allocation; a != nil {
		for i := range a.Devices.Results {
			defaultTolerations(a.Devices.Results[i].Tolerations)
		}
	}
}

// adminAccess refuses requests with admin access unless the namespace has the label. Like in
// kube-apiserver, the field path is the one of a claim even for templates.
func (l NamespaceLabels) adminAccess(
	ctx context.Context, namespace string, d *resourcev1.DeviceClaim,
) field.ErrorList {
	for i, r := range d.Requests {
		if r.Exactly != nil && r.Exactly.AdminAccess != nil && *r.Exactly.AdminAccess {
			return l.labelled(ctx, namespace,
				field.NewPath("spec", "devices", "requests").Index(i).Child("adminAccess"))
		}
	}
	return nil
}

// adminAccessGranted refuses allocations with admin access unless the namespace has the label or
// the old claim has such an allocation already.
func (l NamespaceLabels) adminAccessGranted(
	ctx context.Context, c, old *resourcev1.ResourceClaim,
) field.ErrorList {
	granted := func(c *resourcev1.ResourceClaim) int {
		if c.Status.Allocation == nil {
			return -1
		}
		return slices.IndexFunc(c.Status.Allocation.Devices.Results,
			func(r resourcev1.DeviceRequestAllocationResult) bool {
				return r.AdminAccess != nil && *r.AdminAccess
			})
	}
	i := granted(c)
	if i < 0 || granted(old) >= 0 {
		return nil
	}
	return l.labelled(ctx, c.Namespace,
		field.NewPath("status", "allocation", "devices", "results").Index(i).Child("adminAccess"))
}

func (l NamespaceLabels) labelled(
	ctx context.Context, namespace string, at *field.Path,
) field.ErrorList {
	if l == nil {
		return nil
	}
	labels, err := l(ctx, namespace)
	switch {
	case err != nil:
		return field.ErrorList{field.InternalError(at, err)}
	case labels[adminLabel] != "true":
		return field.ErrorList{
			field.Forbidden(at, "the namespace does not have the label "+adminLabel+": true"),
		}
	}
	return nil
}

// prepareClaimStatus drops the statuses of devices that this update deallocates. Not every
// allocator knows the field that holds them.
func prepareClaimStatus(_ context.Context, c, old *resourcev1.ResourceClaim) {
	metav1.ResetObjectMetaForStatus(c, old)
	features.Drop(statusFeatures(), c, old, features.Enabled)
	gone := allocatedDevices(old).Difference(allocatedDevices(c))
	c.Status.Devices = slices.DeleteFunc(c.Status.Devices,
		func(s resourcev1.AllocatedDeviceStatus) bool { return gone.Has(reported(&s)) })
	if len(c.Status.Devices) == 0 {
		c.Status.Devices = nil
	}
	if a := c.Status.Allocation; a != nil && old.Status.Allocation == nil {
		for i := range a.Devices.Results {
			// a field of the alpha feature DRAOptionalNodeOperations
			a.Devices.Results[i].SkipNodeOperations = nil
		}
	}
}

// device identifies a device, or a share of one, across drivers.
type device struct{ driver, pool, name, share string }

func allocatedDevices(c *resourcev1.ResourceClaim) sets.Set[device] {
	devices := sets.New[device]()
	if c.Status.Allocation == nil {
		return devices
	}
	for _, r := range c.Status.Allocation.Devices.Results {
		d := device{driver: r.Driver, pool: r.Pool, name: r.Device}
		if r.ShareID != nil {
			d.share = string(*r.ShareID)
		}
		devices.Insert(d)
	}
	return devices
}

func reported(s *resourcev1.AllocatedDeviceStatus) device {
	d := device{driver: s.Driver, pool: s.Pool, name: s.Device}
	if s.ShareID != nil {
		d.share = *s.ShareID
	}
	return d
}

func validateClaimStatus(c, old *resourcev1.ResourceClaim) field.ErrorList {
	at := field.NewPath("status")
	errs := validateReservations(c, old, at.Child("reservedFor"))
	allocated := allocatedDevices(c)
	errs = append(errs, unique(c.Status.Devices, math.MaxInt, at.Child("devices"), reported,
		func(s *resourcev1.AllocatedDeviceStatus, at *field.Path) field.ErrorList {
			return validateDeviceStatus(s, allocated, at)
		})...)
	switch a := c.Status.Allocation; {
	case a == nil:
	case old.Status.Allocation != nil:
		errs = append(errs, apivalidation.ValidateImmutableField(a, old.Status.Allocation,
			at.Child("allocation"))...)
	default:
		errs = append(errs, validateAllocation(a, requestNames(&c.Spec.Devices),
			at.Child("allocation"))...)
	}
	return errs
}

func validateReservations(c, old *resourcev1.ResourceClaim, at *field.Path) field.ErrorList {
	list := c.Status.ReservedFor
	errs := unique(list, resourcev1.ResourceClaimReservedForMaxSize, at,
		func(r *resourcev1.ResourceClaimConsumerReference) types.UID { return r.UID },
		func(r *resourcev1.ResourceClaimConsumerReference, at *field.Path) field.ErrorList {
			var errs field.ErrorList
			for name, value := range map[string]string{
				"resource": r.Resource,
				"name":     r.Name,
				"uid":      string(r.UID),
			} {
				if value == "" {
					errs = append(errs, field.Required(at.Child(name), ""))
				}
			}
			return errs
		})
	switch {
	case len(list) > 0 && c.Status.Allocation == nil:
		errs = append(errs, field.Forbidden(at, "may not be set unless the claim is allocated"))
	case c.DeletionTimestamp != nil && !sets.New(old.Status.ReservedFor...).HasAll(list...):
		errs = append(errs, field.Forbidden(at, "may not be extended while the claim is being deleted"))
	}
	return errs
}

func validateAllocation(
	a *resourcev1.AllocationResult, names sets.Set[string], at *field.Path,
) field.ErrorList {
	errs := each(a.Devices.Results, resourcev1.AllocationResultsMaxSize,
		at.Child("devices", "results"),
		func(r *resourcev1.DeviceRequestAllocationResult, at *field.Path) field.ErrorList {
			errs := reference(r.Request, names, at.Child("request"))
			errs = append(errs, volumesources.ValidateCSIDriverName(r.Driver, at.Child("driver"))...)
			errs = append(errs, poolName(r.Pool, at.Child("pool"))...)
			errs = append(errs, label(r.Device, at.Child("device"))...)
			return append(errs, validateBindingConditions(r.BindingConditions,
				r.BindingFailureConditions, at)...)
		})
	errs = append(errs, each(a.Devices.Config, 2*resourcev1.DeviceConfigMaxSize,
		at.Child("devices", "config"),
		func(c *resourcev1.DeviceAllocationConfiguration, at *field.Path) field.ErrorList {
			errs := references(c.Requests, names, at.Child("requests"))
			return append(errs, validateConfiguration(&c.DeviceConfiguration, false, at)...)
		})...)
	if a.NodeSelector != nil {
		errs = append(errs, nodeselectors.Validate(a.NodeSelector, false, at.Child("nodeSelector"))...)
	}
	return errs
}

// validateDeviceStatus checks the status that a driver reports for an allocated device.
func validateDeviceStatus(
	s *resourcev1.AllocatedDeviceStatus, allocated sets.Set[device], at *field.Path,
) field.ErrorList {
	errs := volumesources.ValidateCSIDriverName(s.Driver, at.Child("driver"))
	errs = append(errs, poolName(s.Pool, at.Child("pool"))...)
	errs = append(errs, label(s.Device, at.Child("device"))...)
	if !allocated.Has(reported(s)) {
		errs = append(errs, field.Invalid(at, s.Driver+"/"+s.Pool+"/"+s.Device,
			"must be an allocated device of the claim"))
	}
	if limit := resourcev1.AllocatedDeviceStatusMaxConditions; len(s.Conditions) > limit {
		errs = append(errs, field.TooMany(at.Child("conditions"), len(s.Conditions), limit))
	}
	errs = append(errs, metavalidation.ValidateConditions(s.Conditions, at.Child("conditions"))...)
	if s.Data != nil && len(s.Data.Raw) > 0 {
		errs = append(errs, object(*s.Data, false,
			resourcev1.AllocatedDeviceStatusDataMaxLength, at.Child("data"))...)
	}
	if n := s.NetworkData; n != nil {
		errs = append(errs, unique(n.IPs, resourcev1.NetworkDeviceDataMaxIPs,
			at.Child("networkData", "ips"), func(ip *string) string { return *ip },
			func(ip *string, at *field.Path) field.ErrorList {
				return validation.IsValidInterfaceAddress(at, *ip)
			})...)
	}
	return errs
}
