package authorization

import (
	"context"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// refuse returns an error if the review is invalid. The error names only the group, as in
// kube-apiserver.
func refuse(errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(authorizationv1.SchemeGroupVersion.WithKind("").GroupKind(), "", errs)
}

func subject(spec *authorizationv1.SubjectAccessReviewSpec) user.Info {
	u := &user.DefaultInfo{Name: spec.User, UID: spec.UID, Groups: spec.Groups}
	if spec.Extra != nil {
		u.Extra = make(map[string][]string, len(spec.Extra))
		for key, values := range spec.Extra {
			u.Extra[key] = values
		}
	}
	return u
}

// decide returns the authorizer's decision in the form of a review's status.
func decide(
	ctx context.Context, auth authorizer.UnconditionalAuthorizer, u user.Info,
	r *authorizationv1.ResourceAttributes,
	n *authorizationv1.NonResourceAttributes,
) authorizationv1.SubjectAccessReviewStatus {
	attributes := authorizer.AttributesRecord{User: u}
	if r != nil {
		attributes = resourceAttributes(u, r)
	} else if n != nil {
		attributes.Verb, attributes.Path = n.Verb, n.Path
	}
	decision, reason, err := auth.Authorize(ctx, attributes)
	status := authorizationv1.SubjectAccessReviewStatus{
		Allowed: decision == authorizer.DecisionAllow,
		Denied:  decision == authorizer.DecisionDeny,
		Reason:  reason,
	}
	status.EvaluationError = evaluationError(err, &attributes)
	return status
}
