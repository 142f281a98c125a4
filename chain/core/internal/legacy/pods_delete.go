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
	return s.Storage.Delete(asking(ctx, options), name, pausing(validate), options)
}

// DeleteCollection implements rest.CollectionDeleter.
func (s podStorage) DeleteCollection(
	ctx context.Context, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions,
	list *internalversion.ListOptions,
) (runtime.Object, error) {
	return s.Storage.DeleteCollection(asking(ctx, options), pausing(validate), options, list)
}

type askedKey struct{}

// asking returns a context with the grace period that a client asks for. The registry decides about
// a pod from the watch cache first, which may not have its node yet. Such a pod goes at once, which
// podGracePeriod writes into the options. The registry then decides about the stored pod with the
// same options, which do not tell any more what the client has asked for.
func asking(ctx context.Context, options *metav1.DeleteOptions) context.Context {
	if options == nil {
		return ctx
	}
	return context.WithValue(ctx, askedKey{}, options.GracePeriodSeconds)
}

// asked returns what the client of a deletion asked for, if anything.
func asked(ctx context.Context, options *metav1.DeleteOptions) *int64 {
	if period, ok := ctx.Value(askedKey{}).(*int64); ok {
		return period
	}
	return options.GracePeriodSeconds
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
