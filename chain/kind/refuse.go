package kind

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
)

// Malformed is the error for an object that cannot be read because of err. It blames the request
// or, if the object is the result of a patch, the patch.
func Malformed(ctx context.Context, err error) error {
	if info, ok := genericapirequest.RequestInfoFrom(ctx); ok && info.Verb == "patch" {
		return apierrors.NewInvalid(schema.GroupKind{}, "",
			field.ErrorList{field.Invalid(field.NewPath("patch"), field.OmitValueType{}, err.Error())})
	}
	return apierrors.NewBadRequest(err.Error())
}

func (s strategy) refuseCreate(
	ctx context.Context, obj runtime.Object, _ *metav1.CreateOptions,
) (genericregistry.FinishFunc, error) {
	return nothingToFinish, s.k.Refuse(ctx, obj.(Object))
}

func (s strategy) refuseUpdate(
	ctx context.Context, obj, _ runtime.Object, _ *metav1.UpdateOptions,
) (genericregistry.FinishFunc, error) {
	return nothingToFinish, s.k.Refuse(ctx, obj.(Object))
}

func nothingToFinish(context.Context, bool) {}
