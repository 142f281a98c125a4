package legacy

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/kinproc/kinproc/chain/kind"
)

// terminatingPause is how long a pod without a node is terminating before it is gone. No kubelet
// has to confirm that deletion, so one request writes both steps. With an etcd in another process,
// controllers have about as much time to see the pod terminating, and some depend on it.
const terminatingPause = time.Millisecond

// podStorage is the storage of pods. Those without a node do not go at once.
type podStorage struct{ *kind.Storage }

// Delete implements rest.GracefulDeleter.
func (s podStorage) Delete(
	ctx context.Context, name string, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions,
) (runtime.Object, bool, error) {
	return s.Storage.Delete(ctx, name, pausing(asAsked(options, validate)), options)
}

// asAsked returns a validation that first restores the grace period that the client asked for. The
// library decides about an object from the watch cache first, where a pod may not have its node yet,
// and writes into the options that such a pod goes at once. It then decides about the stored object
// with the same options, and would not wait for the node.
func asAsked(
	options *metav1.DeleteOptions, validate rest.ValidateObjectFunc,
) rest.ValidateObjectFunc {
	if options == nil {
		return validate
	}
	asked := options.GracePeriodSeconds
	return func(ctx context.Context, obj runtime.Object) error {
		options.GracePeriodSeconds = asked
		return validate(ctx, obj)
	}
}

// DeleteCollection implements rest.CollectionDeleter.
func (s podStorage) DeleteCollection(
	ctx context.Context, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions,
	list *internalversion.ListOptions,
) (runtime.Object, error) {
	return s.Storage.DeleteCollection(ctx, pausing(validate), options, list)
}

// pausing returns a validation that takes a moment for a pod that has been marked as terminating
// and is about to go.
func pausing(validate rest.ValidateObjectFunc) rest.ValidateObjectFunc {
	return func(ctx context.Context, obj runtime.Object) error {
		if err := validate(ctx, obj); err != nil {
			return err
		}
		pod, ok := obj.(*corev1.Pod)
		if ok && pod.DeletionTimestamp != nil && pod.Spec.NodeName == "" {
			select {
			case <-ctx.Done():
			case <-time.After(terminatingPause):
			}
		}
		return nil
	}
}
