package aggregator

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistrationclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"
	apiregistrationinformers "k8s.io/kube-aggregator/pkg/client/informers/externalversions/apiregistration/v1"
)

// recreateDeleted recreates the APIServices of local versions when they are deleted, because
// discovery would lack their kinds. The library's controller does that for custom resources, but
// creates local APIServices only once, when the server starts. A user who wants another server to
// serve a local version changes its APIService; such a change is kept.
func recreateDeleted(
	ctx context.Context, services apiregistrationinformers.APIServiceInformer,
	client apiregistrationclient.APIServiceInterface,
	wanted map[string]*apiregistrationv1.APIService,
) error {
	_, err := services.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		DeleteFunc: func(obj any) {
			name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
			if service, local := wanted[name]; err == nil && local {
				recreate(ctx, client, service)
			}
		},
	})
	// A start that is interrupted may have stopped the informer. The error of a hook would end the
	// process.
	if err != nil && !services.Informer().IsStopped() {
		return fmt.Errorf("watch APIServices: %w", err)
	}
	return nil
}

// recreate tries until it succeeds or ctx ends. It may take its time, because nothing else uses the
// event handler that calls it.
func recreate(
	ctx context.Context, client apiregistrationclient.APIServiceInterface,
	service *apiregistrationv1.APIService,
) {
	backoff := wait.Backoff{Duration: firstRetry, Factor: 2, Steps: 10, Cap: lastRetry}
	// The only error is that ctx has ended.
	_ = backoff.DelayFunc().Until(ctx, true, false, func(ctx context.Context) (bool, error) {
		_, err := client.Create(ctx, service.DeepCopy(), metav1.CreateOptions{})
		if err == nil || apierrors.IsAlreadyExists(err) { // another client was faster
			return true, nil
		}
		if ctx.Err() == nil {
			utilruntime.HandleErrorWithContext(ctx, err,
				"Failed to recreate the APIService of a local version", "apiservice", service.Name)
		}
		return false, nil
	})
}
