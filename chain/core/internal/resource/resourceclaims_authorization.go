package resource

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters"

	"github.com/kinproc/kinproc/chain/features"
)

// statusRights checks the permissions that writing a claim's status requires beyond the update of
// resourceclaims/status (KEP-4817). Changing the allocation or the reservations requires permission
// to update resourceclaims/binding. Changing the status of a device requires permission to update
// resourceclaims/driver with the name of the driver. These subresources exist only as names in
// roles.
type statusRights struct {
	authorizer authorizer.UnconditionalAuthorizer
}

func (r statusRights) check(ctx context.Context, c, old *resourcev1.ResourceClaim) field.ErrorList {
	binds := !equality.Semantic.DeepEqual(c.Status.Allocation, old.Status.Allocation) ||
		!equality.Semantic.DeepEqual(c.Status.ReservedFor, old.Status.ReservedFor)
	drivers := changedDrivers(c, old)
	if r.authorizer == nil || !binds && len(drivers) == 0 ||
		!features.Enabled(features.DRAResourceClaimGranularStatusAuthorization) {
		return nil
	}
	at := field.NewPath("status")
	asked, err := filters.GetAuthorizerAttributes(ctx)
	if err != nil {
		return field.ErrorList{field.InternalError(at, err)}
	}

	var errs field.ErrorList
	if binds {
		if err := r.allowed(ctx, asked, []string{asked.GetVerb()}, resourcev1.SubresourceBinding, "",
			""); err != nil {
			errs = append(errs, field.Forbidden(at.Child("allocation"),
				fmt.Sprintf("changing status.allocation or status.reservedFor requires more permissions: %v",
					err)))
		}
	}
	verbs := []string{resourcev1.VerbPrefixArbitraryNode + asked.GetVerb()}
	if runsOn(asked.GetUser(), allocatedNode(c.Status.Allocation)) {
		verbs = slices.Insert(verbs, 0, resourcev1.VerbPrefixAssociatedNode+asked.GetVerb())
	}
	for _, driver := range drivers {
		if err := r.allowed(ctx, asked, verbs, resourcev1.SubresourceDriver,
			asked.GetNamespace(), driver); err != nil {
			errs = append(errs, field.Forbidden(at.Child("devices"),
				fmt.Sprintf("changing status.devices requires more permissions: %v", err)))
		}
	}
	return errs
}

// allowed returns nil if the authorizer allows one of the verbs. A decision to allow counts even if
// it comes with an error.
func (r statusRights) allowed(
	ctx context.Context, asked authorizer.Attributes, verbs []string,
	subresource, namespace, name string,
) error {
	var because []error
	for _, verb := range verbs {
		decision, reason, err := r.authorizer.Authorize(ctx, authorizer.AttributesRecord{
			User:            asked.GetUser(),
			Verb:            verb,
			Namespace:       namespace,
			APIGroup:        asked.GetAPIGroup(),
			APIVersion:      asked.GetAPIVersion(),
			Resource:        asked.GetResource(),
			Subresource:     subresource,
			Name:            name,
			ResourceRequest: true,
		})
		if decision == authorizer.DecisionAllow {
			return nil
		}
		denial := fmt.Errorf("user %q cannot %s resourceclaims/%s %s",
			asked.GetUser().GetName(), verb, subresource, name)
		if reason != "" {
			denial = fmt.Errorf("%w: %s", denial, reason)
		}
		because = append(because, denial, err)
	}
	return errors.Join(because...)
}

// changedDrivers returns the names of the drivers whose device statuses differ, sorted. Without an
// allocation there are none: deallocation only requires permission to bind.
func changedDrivers(c, old *resourcev1.ResourceClaim) []string {
	if c.Status.Allocation == nil {
		return nil
	}
	was := map[device]*resourcev1.AllocatedDeviceStatus{}
	for i := range old.Status.Devices {
		s := &old.Status.Devices[i]
		was[reported(s)] = s
	}
	drivers := sets.New[string]()
	for i := range c.Status.Devices {
		s := &c.Status.Devices[i]
		if !equality.Semantic.DeepEqual(s, was[reported(s)]) {
			drivers.Insert(s.Driver)
		}
		delete(was, reported(s))
	}
	for d := range was {
		drivers.Insert(d.driver)
	}
	return sets.List(drivers)
}

// allocatedNode returns the name of the node that an allocation selects, or "" if it does not
// select exactly one node by name.
func allocatedNode(a *resourcev1.AllocationResult) string {
	if a == nil || a.NodeSelector == nil || len(a.NodeSelector.NodeSelectorTerms) != 1 {
		return ""
	}
	term := a.NodeSelector.NodeSelectorTerms[0]
	if len(term.MatchExpressions) != 0 || len(term.MatchFields) != 1 {
		return ""
	}
	f := term.MatchFields[0]
	if f.Key != metav1.ObjectNameField || f.Operator != corev1.NodeSelectorOpIn || len(f.Values) != 1 {
		return ""
	}
	return f.Values[0]
}

// runsOn reports whether the user is a service account whose token is bound to the node.
func runsOn(u user.Info, node string) bool {
	if _, _, err := serviceaccount.SplitUsername(u.GetName()); err != nil {
		return false
	}
	names := u.GetExtra()[serviceaccount.NodeNameKey]
	return len(names) == 1 && names[0] == node &&
		len(apivalidation.NameIsDNSSubdomain(node, false)) == 0
}
