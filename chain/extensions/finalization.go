package extensions

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kinproc/kinproc/chain/internal/etcdstore"
)

// whileDeleted returns a function that refuses to delete custom resources unless their CRD
// is being deleted. The finalizer of CRDs would otherwise go on if the control plane was
// reset to a state in which the CRD is not deleted.
func whileDeleted(
	backend *etcdstore.Backend,
) func(context.Context, schema.GroupResource) error {
	definitions := pathOf(apiextensionsv1.Resource("customresourcedefinitions"))
	return func(ctx context.Context, resource schema.GroupResource) error {
		stored, err := backend.Stored(ctx, definitions+"/"+resource.String())
		if err != nil {
			return err
		}
		var definition metav1.PartialObjectMetadata
		if stored != nil {
			if err := json.Unmarshal(stored, &definition); err != nil {
				return fmt.Errorf("decode the CRD of %s: %w", resource, err)
			}
		}
		if definition.DeletionTimestamp != nil {
			return nil
		}
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusConflict, Reason: metav1.StatusReasonConflict,
			Message: fmt.Sprintf("the CRD of %s is not being deleted any more", resource),
		}}
	}
}
