package aggregator

import (
	"context"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistrationclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"
	apiregistrationinformers "k8s.io/kube-aggregator/pkg/client/informers/externalversions/apiregistration/v1"
)

// deletedServices recreates the APIServices of local versions when they are deleted, because
// discovery would lack their kinds. The library's controller does that for custom resources, but
// creates local APIServices only once, when the server starts. A user who wants another server to
// serve a local version changes its APIService; such a change is kept.
type deletedServices struct {
	client apiregistrationclient.APIServiceInterface
	wanted map[string]*apiregistrationv1.APIService
	queue  workqueue.TypedRateLimitingInterface[string]
}

func newDeletedServices(
	services apiregistrationinformers.APIServiceInformer,
	client apiregistrationclient.APIServiceInterface,
	wanted map[string]*apiregistrationv1.APIService,
) (*deletedServices, error) {
	d := &deletedServices{
		client: client,
		wanted: wanted,
		queue:  workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]()),
	}
	_, err := services.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		DeleteFunc: func(obj any) {
			name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
			if _, local := wanted[name]; err == nil && local {
				d.queue.Add(name)
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("watch APIServices: %w", err)
	}
	return d, nil
}

// run processes the queue until ctx ends.
func (d *deletedServices) run(ctx context.Context) {
	var worker sync.WaitGroup
	worker.Go(func() {
		for {
			name, shutdown := d.queue.Get()
			if shutdown {
				return
			}
			d.create(ctx, name)
			d.queue.Done(name)
		}
	})
	<-ctx.Done()
	d.queue.ShutDown()
	worker.Wait()
}

func (d *deletedServices) create(ctx context.Context, name string) {
	_, err := d.client.Create(ctx, d.wanted[name].DeepCopy(), metav1.CreateOptions{})
	switch {
	case err == nil, apierrors.IsAlreadyExists(err): // another client was faster
		d.queue.Forget(name)
	case ctx.Err() == nil:
		utilruntime.HandleErrorWithContext(ctx, err,
			"Failed to recreate the APIService of a local version", "apiservice", name)
		d.queue.AddRateLimited(name)
	}
}
