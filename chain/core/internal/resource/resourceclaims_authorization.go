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
)

// statusRights are what a writer of a claim's status needs beyond the right to write it (KEP-4817): allocations are for who may update
// resourceclaims/binding, and what a driver says about devices is for who may update resourceclaims/driver of its name. Neither exists
// but as a name in roles.
type statusRights struct {
	authorizer authorizer.UnconditionalAuthorizer
}

func (r statusRights) check(ctx context.Context, c, old *resourcev1.ResourceClaim) field.ErrorList {
	binds := !equality.Semantic.DeepEqual(c.Status.Allocation, old.Status.Allocation) ||
		!equality.Semantic.DeepEqual(c.Status.ReservedFor, old.Status.ReservedFor)
	drivers := changedDrivers(c, old)
	if r.authorizer == nil || !binds && len(drivers) == 0 {
		return nil
	}
	at := field.NewPath("status")
	asked, err := filters.GetAuthorizerAttributes(ctx)
	if err != nil {
		return field.ErrorList{field.InternalError(at, err)}
	}

	var errs field.ErrorList
	if binds {
		if err := r.allowed(ctx, asked, []string{asked.GetVerb()}, resourcev1.SubresourceBinding, "", ""); err != nil {
			errs = append(errs, field.Forbidden(at, fmt.Sprintf("changing status.allocation or status.reservedFor requires a right: %v", err)))
		}
	}
	verbs := []string{resourcev1.VerbPrefixArbitraryNode + asked.GetVerb()}
	if runsOn(asked.GetUser(), allocatedNode(c.Status.Allocation)) {
		verbs = slices.Insert(verbs, 0, resourcev1.VerbPrefixAssociatedNode+asked.GetVerb())
	}
	for _, driver := range drivers {
		if err := r.allowed(ctx, asked, verbs, resourcev1.SubresourceDriver, asked.GetNamespace(), driver); err != nil {
			errs = append(errs, field.Forbidden(at.Child("devices"), fmt.Sprintf("changing status.devices requires a right: %v", err)))
		}
	}
	return errs
}

// allowed asks for one of the verbs. An authorizer that fails may allow all the same.
func (r statusRights) allowed(ctx context.Context, asked authorizer.Attributes, verbs []string, subresource, namespace, name string) error {
	var because []error
	for _, verb := range verbs {
		decision, reason, err := r.authorizer.Authorize(ctx, authorizer.AttributesRecord{
			User: asked.GetUser(), Verb: verb, Namespace: namespace, APIGroup: asked.GetAPIGroup(), APIVersion: asked.GetAPIVersion(),
			Resource: asked.GetResource(), Subresource: subresource, Name: name, ResourceRequest: true,
		})
		if decision == authorizer.DecisionAllow {
			return nil
		}
		denial := fmt.Errorf("user %q cannot %s resourceclaims/%s %s", asked.GetUser().GetName(), verb, subresource, name)
		if reason != "" {
			denial = fmt.Errorf("%w: %s", denial, reason)
		}
		because = append(because, denial, err)
	}
	return errors.Join(because...)
}

// changedDrivers lists, sorted, the drivers whose reports differ. Reports that went with their devices' allocation are not their drivers'
// change: who may bind may unbind.
func changedDrivers(c, old *resourcev1.ResourceClaim) []string {
	was := map[device]*resourcev1.AllocatedDeviceStatus{}
	gone := allocatedDevices(old).Difference(allocatedDevices(c))
	for i := range old.Status.Devices {
		if s := &old.Status.Devices[i]; !gone.Has(reported(s)) {
			was[reported(s)] = s
		}
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

// allocatedNode is the one node on which a claim can be used, if there is just one.
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

// runsOn says whether the user is a service account whose token says that it is used on the node.
func runsOn(u user.Info, node string) bool {
	if _, _, err := serviceaccount.SplitUsername(u.GetName()); err != nil {
		return false
	}
	names := u.GetExtra()[serviceaccount.NodeNameKey]
	return len(names) == 1 && names[0] == node && len(apivalidation.NameIsDNSSubdomain(node, false)) == 0
}
