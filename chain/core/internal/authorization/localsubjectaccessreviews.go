package authorization

import (
	"context"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/kinproc/kinproc/chain/kind"
)

// LocalSubjectAccessReviews declares localsubjectaccessreviews, which report whether a user may do
// something in a namespace. They are namespaced, so a role can grant permission to create them.
func LocalSubjectAccessReviews(auth authorizer.UnconditionalAuthorizer) *kind.Virtual {
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
					errs = append(errs, field.Invalid(at.Child("resourceAttributes", "namespace"), r.Namespace,
						"must match metadata.namespace"))
				}
				if n := review.Spec.NonResourceAttributes; n != nil {
					errs = append(errs, field.Invalid(at.Child("nonResourceAttributes"), n,
						"may not be specified, because non-resource requests have no namespace"))
				}
				return refuse(errs)
			},
			Do: func(ctx context.Context, review T) (T, error) {
				review.Status = decide(ctx, auth, subject(&review.Spec), review.Spec.ResourceAttributes,
					review.Spec.NonResourceAttributes)
				return review, nil
			},
		}
	}}
}
