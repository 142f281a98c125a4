package aggregator

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/transport"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apihelper "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"
	aggregatorapiserver "k8s.io/kube-aggregator/pkg/apiserver"
	aggregatorclientset "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	apiregistrationlisters "k8s.io/kube-aggregator/pkg/client/listers/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/controllers/status/remote"
)

const (
	// Retry intervals for a server that is down. kube-apiserver waits up to 30 s; here a developer
	// may have just restarted the server.
	firstRetry, lastRetry = 10 * time.Millisecond, time.Second
	// recheck is the interval at which a server that is up is checked again. kube-apiserver checks
	// every 30 s.
	recheck = 5 * time.Second
	// documentsRecheck is the interval at which a server is asked for its OpenAPI documents, as in
	// kube-apiserver.
	documentsRecheck = time.Minute
	// answerTimeout is how long a server may take to respond, as in kube-apiserver.
	answerTimeout = 5 * time.Second
)

// availability maintains the condition Available of the APIServices that other servers serve. It is
// kube-aggregator's controller with shorter intervals, and with a goroutine for each of these
// APIServices in place of workers.
type availability struct {
	client      aggregatorclientset.Interface
	apiServices apiregistrationlisters.APIServiceLister
	services    corelisters.ServiceLister
	slices      discoverylisters.EndpointSliceLister
	synced      []cache.InformerSynced
	config      Config
	// dial, cert and key are those of the config; cert is nil if the files may change.
	dial      *transport.DialHolder
	cert, key []byte
	documents *documents

	mu sync.Mutex
	// ctx is nil unless the controller runs.
	ctx context.Context
	// changes tell the goroutines, by the name of their APIService, that something has changed.
	changes map[string]chan struct{}
	running sync.WaitGroup
}

// watchAvailability starts the controller together with s.
func watchAvailability(
	s *aggregatorapiserver.APIAggregator, config Config, documents *documents,
) error {
	client, err := aggregatorclientset.NewForConfig(s.GenericAPIServer.LoopbackClientConfig)
	if err != nil {
		return err
	}
	apiServices := s.APIRegistrationInformers.Apiregistration().V1().APIServices()
	a := &availability{
		client:      client,
		apiServices: apiServices.Lister(),
		services:    config.Informers.Core().V1().Services().Lister(),
		slices:      config.Informers.Discovery().V1().EndpointSlices().Lister(),
		config:      config,
		documents:   documents,
		changes:     map[string]chan struct{}{},
	}
	if config.Dial != nil {
		a.dial = &transport.DialHolder{Dial: config.Dial}
	}
	if config.ProxyClientCertKept {
		if a.cert, err = os.ReadFile(config.ProxyClientCertFile); err != nil {
			return err
		}
		if a.key, err = os.ReadFile(config.ProxyClientKeyFile); err != nil {
			return err
		}
	}
	if err := a.watch(apiServices.Informer(), func(obj metav1.Object) {
		a.changed(obj.GetName())
	}); err != nil {
		return err
	}
	if err := a.watchServices(config.Informers); err != nil {
		return err
	}
	return s.GenericAPIServer.AddPostStartHook("apiservice-status-remote-available-controller",
		func(hook genericapiserver.PostStartHookContext) error {
			go a.run(hook)
			return nil
		})
}

func (a *availability) watchServices(shared informers.SharedInformerFactory) error {
	err := a.watch(shared.Core().V1().Services().Informer(), func(obj metav1.Object) {
		a.serviceChanged(obj.GetNamespace(), obj.GetName())
	})
	if err != nil {
		return err
	}
	return a.watch(shared.Discovery().V1().EndpointSlices().Informer(), func(obj metav1.Object) {
		a.serviceChanged(obj.GetNamespace(), obj.GetLabels()[discoveryv1.LabelServiceName])
	})
}

func (a *availability) watch(
	informer cache.SharedIndexInformer, changed func(metav1.Object),
) error {
	f := func(obj any) {
		if o, ok := lastState(obj).(metav1.Object); ok {
			changed(o)
		}
	}
	handler, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    f,
		UpdateFunc: func(_, obj any) { f(obj) },
		DeleteFunc: f,
	})
	if err != nil {
		return err
	}
	a.synced = append(a.synced, handler.HasSynced)
	return nil
}

// lastState returns the object that a handler gets or, if an informer has found out from a list
// that the object was deleted, the last state that it has seen.
func lastState(obj any) any {
	if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		return unknown.Obj
	}
	return obj
}

// serviceChanged checks the APIServices that refer to a service.
func (a *availability) serviceChanged(namespace, name string) {
	all, err := a.apiServices.List(labels.Everything())
	if err != nil {
		return // cannot happen: the lister reads from memory
	}
	for _, s := range all {
		if r := s.Spec.Service; r != nil && r.Namespace == namespace && r.Name == name {
			a.changed(s.Name)
		}
	}
}

func (a *availability) run(ctx context.Context) {
	if !cache.WaitForCacheSync(ctx.Done(), a.synced...) {
		return
	}
	a.mu.Lock()
	a.ctx = ctx
	a.mu.Unlock()
	all, err := a.apiServices.List(labels.Everything())
	if err != nil {
		return // cannot happen: the lister reads from memory
	}
	for _, s := range all {
		a.changed(s.Name)
	}
	<-ctx.Done()
	a.mu.Lock()
	a.ctx = nil // no further goroutine starts
	a.mu.Unlock()
	a.running.Wait()
}

// changed checks an APIService now, and from now on if another server serves it.
func (a *availability) changed(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ctx == nil {
		return
	}
	changes, ok := a.changes[name]
	if !ok {
		if s, err := a.apiServices.Get(name); err != nil || s.Spec.Service == nil {
			return
		}
		changes = make(chan struct{}, 1)
		a.changes[name] = changes
		ctx := a.ctx
		a.running.Go(func() { a.follow(ctx, name, changes) })
		return
	}
	select {
	case changes <- struct{}{}:
	default: // it already knows
	}
}

// follow checks an APIService until it is gone, or served by this process.
func (a *availability) follow(ctx context.Context, name string, changes <-chan struct{}) {
	backoff := wait.Backoff{Duration: firstRetry, Factor: 2, Steps: 10, Cap: lastRetry}
	retry := backoff.DelayFunc()
	defer a.documents.remove(name)
	var asked asked
	for {
		again := retry
		service, err := a.apiServices.Get(name)
		if err != nil || service.Spec.Service == nil {
			if a.forget(name, changes) {
				return
			}
			continue
		}
		if a.keep(ctx, service, &asked) {
			retry = backoff.DelayFunc()
			again = func() time.Duration { return recheck }
		}
		timer := time.NewTimer(again())
		select {
		case <-changes:
			timer.Stop()
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// forget ends the checks of an APIService, unless it has changed again.
func (a *availability) forget(name string, changes <-chan struct{}) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	select {
	case <-changes:
		return false
	default:
		delete(a.changes, name)
		return true
	}
}

// asked is what a server was last asked for its OpenAPI documents for, and when.
type asked struct {
	spec apiregistrationv1.APIServiceSpec
	when time.Time
}

// keep checks an APIService, sets its condition and reports whether it is available.
func (a *availability) keep(
	ctx context.Context, service *apiregistrationv1.APIService, last *asked,
) bool {
	condition := a.check(ctx, service)
	switch {
	case condition.Status != apiregistrationv1.ConditionTrue:
		*last = asked{}
	case time.Since(last.when) >= documentsRecheck ||
		!equality.Semantic.DeepEqual(last.spec, service.Spec):
		*last = asked{service.Spec, time.Now()}
		if err := a.documents.update(ctx, service, a.forward(service)); err != nil && ctx.Err() == nil {
			utilruntime.HandleErrorWithContext(ctx, err,
				"Failed to get the OpenAPI documents of an APIService", "name", service.Name)
		}
	}
	err := a.publish(ctx, service, condition)
	if err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) &&
		!apierrors.IsForbidden(err) {
		utilruntime.HandleErrorWithContext(ctx, err,
			"Failed to report the availability of an APIService", "name", service.Name)
	}
	return err == nil && condition.Status == apiregistrationv1.ConditionTrue
}

func (a *availability) publish(
	ctx context.Context, service *apiregistrationv1.APIService,
	condition apiregistrationv1.APIServiceCondition,
) error {
	updated := service.DeepCopy()
	apihelper.SetAPIServiceCondition(updated, condition)
	if equality.Semantic.DeepEqual(service.Status, updated.Status) {
		return nil
	}
	_, err := a.client.ApiregistrationV1().APIServices().UpdateStatus(ctx, updated,
		metav1.UpdateOptions{})
	return err
}

// check returns the condition Available of an APIService. The reasons are the same as in
// kube-aggregator.
func (a *availability) check(
	ctx context.Context, s *apiregistrationv1.APIService,
) apiregistrationv1.APIServiceCondition {
	condition := apiregistrationv1.APIServiceCondition{
		Type:               apiregistrationv1.Available,
		Status:             apiregistrationv1.ConditionFalse,
		LastTransitionTime: metav1.Now(),
	}
	if condition.Reason, condition.Message = a.checkService(s.Spec.Service); condition.Reason != "" {
		return condition
	}
	if err := a.ask(ctx, s); err != nil {
		condition.Reason, condition.Message = "FailedDiscoveryCheck", err.Error()
		return condition
	}
	condition.Status, condition.Reason, condition.Message = apiregistrationv1.ConditionTrue,
		"Passed", "the server responds"
	return condition
}

// checkService returns what is wrong with a service. The reason is empty if nothing is.
func (a *availability) checkService(
	r *apiregistrationv1.ServiceReference,
) (reason, message string) {
	service, err := a.services.Services(r.Namespace).Get(r.Name)
	if err != nil {
		// Scripts look for this message of kube-aggregator.
		return "ServiceNotFound", fmt.Sprintf("service/%s in %q is not present", r.Name, r.Namespace)
	}
	if service.Spec.Type != corev1.ServiceTypeClusterIP {
		return "", ""
	}
	port := slices.IndexFunc(service.Spec.Ports, func(p corev1.ServicePort) bool {
		return p.Port == *r.Port
	})
	if port < 0 {
		return "ServicePortError",
			fmt.Sprintf("service %s/%s has no port %d", r.Namespace, r.Name, *r.Port)
	}
	found, err := a.slices.EndpointSlices(r.Namespace).List(labels.SelectorFromSet(labels.Set{
		discoveryv1.LabelServiceName: r.Name,
	}))
	if err != nil || len(found) == 0 {
		return "EndpointsNotFound", fmt.Sprintf("service %s/%s has no endpoint slices",
			r.Namespace, r.Name)
	}
	name := service.Spec.Ports[port].Name
	if !slices.ContainsFunc(found,
		func(s *discoveryv1.EndpointSlice) bool { return isReady(s, name) }) {
		return "MissingEndpoints", fmt.Sprintf("service %s/%s has no ready endpoint with the port %q",
			r.Namespace, r.Name, name)
	}
	return "", ""
}

func isReady(s *discoveryv1.EndpointSlice, port string) bool {
	return slices.ContainsFunc(s.Ports, func(p discoveryv1.EndpointPort) bool {
		return p.Name != nil && *p.Name == port && p.Port != nil
	}) && slices.ContainsFunc(s.Endpoints, func(e discoveryv1.Endpoint) bool {
		return e.Conditions.Ready == nil || *e.Conditions.Ready
	})
}

// connect returns the address of an extension API server, and what sends requests to it.
func (a *availability) connect(
	s *apiregistrationv1.APIService,
) (*url.URL, http.RoundTripper, error) {
	r := s.Spec.Service
	address, err := a.config.ServiceResolver.ResolveEndpoint(r.Namespace, r.Name, *r.Port)
	if err != nil {
		return nil, nil, err
	}
	config := remote.BuildTransportConfig(nil, nil, nil, s)
	config.DialHolder = a.dial
	config.TLS.CertData, config.TLS.KeyData = a.cert, a.key
	if a.cert == nil {
		config.TLS.CertFile = a.config.ProxyClientCertFile
		config.TLS.KeyFile = a.config.ProxyClientKeyFile
	}
	roundTripper, err := transport.New(config)
	if err != nil {
		return nil, nil, err
	}
	return address, roundTripper, nil
}

// ask requests the discovery document that the extension API server has to serve.
func (a *availability) ask(ctx context.Context, s *apiregistrationv1.APIService) error {
	address, roundTripper, err := a.connect(s)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	document := url.URL{
		Scheme: address.Scheme,
		Host:   address.Host,
		Path:   "/apis/" + s.Spec.Group + "/" + s.Spec.Version,
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, document.String(), nil)
	if err != nil {
		return err
	}
	transport.SetAuthProxyHeaders(request, "system:kube-aggregator", "",
		[]string{"system:masters"}, nil)
	response, err := roundTripper.RoundTrip(request)
	if err != nil {
		return fmt.Errorf("get %s: %w", &document, err)
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return fmt.Errorf("get %s: %w", &document, err)
	}
	if response.StatusCode/100 != 2 {
		return fmt.Errorf("get %s: %s", &document, response.Status)
	}
	return nil
}
