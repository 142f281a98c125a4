package auth

import (
	"context"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// readOnlyAuthorizer refuses requests that would change something. Access reviews do not ask it, so
// they say what the roles allow.
type readOnlyAuthorizer struct{ authorizer.Authorizer }

// whyReadOnly is the reason of refusals.
const whyReadOnly = "the control plane is read-only"

// forRequests returns the authorizer of requests.
func (c *Config) forRequests(a authorizer.Authorizer) authorizer.Authorizer {
	if c.ReadOnly {
		return readOnlyAuthorizer{a}
	}
	return a
}

// Authorize implements authorizer.UnconditionalAuthorizer.
func (a readOnlyAuthorizer) Authorize(
	ctx context.Context, attributes authorizer.Attributes,
) (authorizer.Decision, string, error) {
	if changes(attributes) {
		return authorizer.DecisionDeny, whyReadOnly, nil
	}
	return a.Authorizer.Authorize(ctx, attributes)
}

// ConditionsAwareAuthorize implements authorizer.Authorizer.
func (a readOnlyAuthorizer) ConditionsAwareAuthorize(
	ctx context.Context, attributes authorizer.Attributes,
) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(a.Authorize(ctx, attributes))
}

// changes reports whether a request may change something.
func changes(a authorizer.Attributes) bool {
	if !a.IsResourceRequest() {
		return slices.Contains([]string{"post", "put", "patch", "delete"}, a.GetVerb())
	}
	switch a.GetVerb() {
	case "create":
		token := a.GetAPIGroup() == "" && a.GetResource() == "serviceaccounts" &&
			a.GetSubresource() == "token"
		return !token && a.GetAPIGroup() != authenticationv1.GroupName &&
			a.GetAPIGroup() != authorizationv1.GroupName
	case "update", "patch", "delete", "deletecollection":
		return true
	}
	return false
}
