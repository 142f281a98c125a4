package aggregator

import (
	"context"
	"testing"

	"k8s.io/client-go/rest"
	apiregistrationclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	apiregistrationinformers "k8s.io/kube-aggregator/pkg/client/informers/externalversions"
)

// A start that was interrupted before a hook began is not an error of the hook.
func TestRecreateDeletedAfterTheStop(t *testing.T) {
	t.Parallel()
	client := apiregistrationclient.NewForConfigOrDie(&rest.Config{})
	services := apiregistrationinformers.NewSharedInformerFactory(client, 0).
		Apiregistration().V1().APIServices()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	services.Informer().RunWithContext(ctx)
	err := recreateDeleted(ctx, services, client.ApiregistrationV1().APIServices(), nil)
	if err != nil {
		t.Error(err)
	}
}
