package authorization

import (
	"context"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/kinproc/kinproc/chain/kind"
)

// SubjectAccessReviews declares subjectaccessreviews: may they?
func SubjectAccessReviews(auth authorizer.UnconditionalAuthorizer) kind.Declaration {
	type T = *authorizationv1.SubjectAccessReview
	return &kind.Virtual{Plural: "subjectaccessreviews", New: func() rest.Storage {
		return &kind.Act[T]{
			Singular: "subjectaccessreview",
			Check: func(_ context.Context, review T) error {
				return refuse(append(validateSubject(&review.Spec), emptyMetadata(review.ObjectMeta, false)...))
			},
			Do: func(ctx context.Context, review T) (T, error) {
				review.Status = decide(ctx, auth, subject(&review.Spec), review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes)
				return review, nil
			},
		}
	}}
}

// LocalSubjectAccessReviews declares localsubjectaccessreviews: may they, in this namespace? Being namespaced, they can be granted by a role.
func LocalSubjectAccessReviews(auth authorizer.UnconditionalAuthorizer) kind.Declaration {
	type T = *authorizationv1.LocalSubjectAccessReview
	return &kind.Virtual{Plural: "localsubjectaccessreviews", New: func() rest.Storage {
		return &kind.Act[T]{
			Singular:   "localsubjectaccessreview",
			Namespaced: true,
			Check: func(ctx context.Context, review T) error {
				if err := sameNamespace(ctx, review); err != nil {
					return err
				}
				errs := append(validateSubject(&review.Spec), emptyMetadata(review.ObjectMeta, true)...)
				at := field.NewPath("spec")
				if r := review.Spec.ResourceAttributes; r != nil && r.Namespace != review.Namespace {
					errs = append(errs, field.Invalid(at.Child("resourceAttributes", "namespace"), r.Namespace, "must be that of the review"))
				}
				if n := review.Spec.NonResourceAttributes; n != nil {
					errs = append(errs, field.Invalid(at.Child("nonResourceAttributes"), n, "what is no resource is in no namespace"))
				}
				return refuse(errs)
			},
			Do: func(ctx context.Context, review T) (T, error) {
				review.Status = decide(ctx, auth, subject(&review.Spec), review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes)
				return review, nil
			},
		}
	}}
}

// refuse makes the answer to an invalid review. It names the group only, as kube-apiserver's does.
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

// decide asks the authorizer.
func decide(ctx context.Context, auth authorizer.UnconditionalAuthorizer, u user.Info, r *authorizationv1.ResourceAttributes,
	n *authorizationv1.NonResourceAttributes) authorizationv1.SubjectAccessReviewStatus {
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
