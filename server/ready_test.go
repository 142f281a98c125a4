package server

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// Control loops start informers when the server has long been ready. The informer of this test
// never syncs.
func TestReadyWhileInformersSync(t *testing.T) {
	t.Parallel()
	s := start(t, Options{})
	ctx, kind := s.stopper.Context(), &metav1.PartialObjectMetadata{}
	up(s, "the test").informers.SharedInformerFactory.InformerFor(kind,
		func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer {
			return cache.NewSharedIndexInformer(&cache.ListWatch{
				ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
					<-ctx.Done()
					return nil, ctx.Err()
				},
				WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
					<-ctx.Done()
					return nil, ctx.Err()
				},
			}, kind, 0, nil)
		})
	up(s, "the test").informers.StartWithContext(ctx)
	says, err := up(s, "the test").requests.Client.Discovery().RESTClient().Get().AbsPath("/readyz").
		Param("verbose", "").DoRaw(t.Context())
	if err != nil {
		t.Errorf("the server is not ready any more: %v\n%s", err, says)
	}
}
