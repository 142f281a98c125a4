package aggregator

import (
	"fmt"
	"net/http"
	"sync/atomic"

	"k8s.io/apiserver/pkg/server/healthz"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistrationv1helper "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"
	apiregistrationinformers "k8s.io/kube-aggregator/pkg/client/informers/externalversions/apiregistration/v1"
)

// completion is the health check autoregister-completion. It fails until the APIServices of all
// local versions are available, and those of CRDs have been registered.
type completion struct {
	services apiregistrationinformers.APIServiceInformer
	wanted   map[string]*apiregistrationv1.APIService
	synced   <-chan struct{}
	complete atomic.Bool // and stays so
}

func newCompletion(
	services apiregistrationinformers.APIServiceInformer,
	wanted map[string]*apiregistrationv1.APIService, synced <-chan struct{},
) healthz.HealthChecker {
	c := &completion{services: services, wanted: wanted, synced: synced}
	return healthz.NamedCheck("autoregister-completion", c.check)
}

func (c *completion) check(*http.Request) error {
	if c.complete.Load() {
		return nil
	}
	for name := range c.wanted {
		service, err := c.services.Lister().Get(name)
		if err != nil {
			return fmt.Errorf("APIService %s is not registered yet: %w", name, err)
		}
		if !apiregistrationv1helper.IsAPIServiceConditionTrue(service, apiregistrationv1.Available) {
			return fmt.Errorf("APIService %s is not available yet", name)
		}
	}
	select {
	case <-c.synced:
	default:
		return fmt.Errorf("the versions of CRDs are not registered yet")
	}
	c.complete.Store(true)
	return nil
}
