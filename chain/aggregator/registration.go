package aggregator

import (
	"context"
	"fmt"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistrationv1helper "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"
	aggregatorclientset "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	"k8s.io/kube-aggregator/pkg/controllers/autoregister"
)

// The priorities of custom resources' groups and versions, as in kube-apiserver.
const (
	customGroupPriority   = 1000
	customVersionPriority = 100
)

// AutoRegister maintains an APIService for every version that the process itself serves: the local
// versions, which are known from the start, and the versions that custom resource definitions
// declare.
func AutoRegister(
	s *Server, local []schema.GroupVersion, crds crdinformers.CustomResourceDefinitionInformer,
) error {
	client, err := aggregatorclientset.NewForConfig(s.GenericAPIServer.LoopbackClientConfig)
	if err != nil {
		return fmt.Errorf("auto-registration of APIServices: %w", err)
	}
	services := s.APIRegistrationInformers.Apiregistration().V1().APIServices()
	registry := autoregister.NewAutoRegisterController(services, client.ApiregistrationV1())
	wanted := map[string]*apiregistrationv1.APIService{}
	for _, gv := range local {
		group, version := priorities(gv)
		service := newAPIService(gv, group, version)
		registry.AddAPIServiceToSyncOnStart(service)
		service.Labels = map[string]string{autoregister.AutoRegisterManagedLabel: managedOnStart}
		wanted[service.Name] = service
	}
	deleted, err := newDeletedServices(services, client.ApiregistrationV1().APIServices(), wanted)
	if err != nil {
		return err
	}
	definitions, err := newDefinitionWatcher(crds, registry)
	if err != nil {
		return err
	}
	if err := s.GenericAPIServer.AddBootSequenceHealthChecks(newCompletion(services,
		wanted, definitions.synced)); err != nil {
		return err
	}
	return s.GenericAPIServer.AddPostStartHook("kube-apiserver-autoregistration",
		func(hook genericapiserver.PostStartHookContext) error {
			go definitions.run(hook)
			go deleted.run(hook)
			go func() {
				// The versions of existing definitions are part of the first sync.
				select {
				case <-definitions.synced:
				case <-hook.Done():
				}
				registry.Run(5, hook.Done()) // also shuts down its queue
			}()
			return nil
		})
}

// managedOnStart is the label value of an APIService that is updated only when the server starts.
const managedOnStart = "onstart"

func newAPIService(gv schema.GroupVersion, group, version int32) *apiregistrationv1.APIService {
	return &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: gv.Version + "." + gv.Group},
		Spec: apiregistrationv1.APIServiceSpec{
			Group:                gv.Group,
			Version:              gv.Version,
			GroupPriorityMinimum: group,
			VersionPriority:      version,
		},
	}
}

// LocalAPIService returns the APIService of a local version as it is after registration, with the
// condition Available.
func LocalAPIService(gv schema.GroupVersion) *apiregistrationv1.APIService {
	group, version := priorities(gv)
	service := newAPIService(gv, group, version)
	service.Labels = map[string]string{autoregister.AutoRegisterManagedLabel: managedOnStart}
	apiregistrationv1helper.SetAPIServiceCondition(service,
		apiregistrationv1helper.NewLocalAvailableAPIServiceCondition())
	return service
}

// ServeLocal installs the paths of local versions, so that the aggregator need not do it when it has
// read their APIServices, which is later in the start. It must be called after PrepareRun and before
// the server's hooks run.
func (s *Server) ServeLocal(local []schema.GroupVersion) error {
	for _, gv := range local {
		group, version := priorities(gv)
		if err := s.AddAPIService(newAPIService(gv, group, version)); err != nil {
			return fmt.Errorf("aggregator: %s: %w", gv, err)
		}
	}
	return nil
}

// definitionWatcher tells the registry which versions the custom resource definitions serve.
type definitionWatcher struct {
	crds     crdinformers.CustomResourceDefinitionInformer
	registry autoregister.AutoAPIServiceRegistration
	queue    workqueue.TypedRateLimitingInterface[schema.GroupVersion]
	synced   chan struct{}
}

func newDefinitionWatcher(
	crds crdinformers.CustomResourceDefinitionInformer,
	registry autoregister.AutoAPIServiceRegistration,
) (*definitionWatcher, error) {
	w := &definitionWatcher{
		crds:     crds,
		registry: registry,
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.DefaultTypedControllerRateLimiter[schema.GroupVersion]()),
		synced: make(chan struct{}),
	}
	enqueue := func(obj any) {
		if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = tombstone.Obj
		}
		if crd, ok := obj.(*apiextensionsv1.CustomResourceDefinition); ok {
			for _, v := range crd.Spec.Versions {
				w.queue.Add(schema.GroupVersion{Group: crd.Spec.Group, Version: v.Name})
			}
		}
	}
	_, err := crds.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: enqueue,
		// The old versions too, because the new definition may have dropped some.
		UpdateFunc: func(old, obj any) { enqueue(old); enqueue(obj) },
		DeleteFunc: enqueue,
	})
	if err != nil {
		return nil, fmt.Errorf("watch custom resource definitions: %w", err)
	}
	return w, nil
}

func (w *definitionWatcher) run(ctx context.Context) {
	defer w.queue.ShutDown()
	if !cache.WaitForCacheSync(ctx.Done(), w.crds.Informer().HasSynced) {
		return
	}
	crds, err := w.crds.Lister().List(labels.Everything())
	if err != nil {
		return // cannot happen: the lister reads from memory
	}
	for _, crd := range crds {
		for _, v := range crd.Spec.Versions {
			w.sync(schema.GroupVersion{Group: crd.Spec.Group, Version: v.Name})
		}
	}
	close(w.synced)

	var worker sync.WaitGroup
	worker.Go(func() {
		for {
			gv, shutdown := w.queue.Get()
			if shutdown {
				return
			}
			w.sync(gv)
			w.queue.Done(gv)
		}
	})
	<-ctx.Done()
	w.queue.ShutDown()
	worker.Wait()
}

func (w *definitionWatcher) sync(gv schema.GroupVersion) {
	crds, err := w.crds.Lister().List(labels.Everything())
	if err != nil {
		return
	}
	service := newAPIService(gv, customGroupPriority, customVersionPriority)
	for _, crd := range crds {
		if crd.Spec.Group != gv.Group {
			continue
		}
		for _, v := range crd.Spec.Versions {
			if v.Name == gv.Version && v.Served {
				w.registry.AddAPIServiceToSync(service)
				return
			}
		}
	}
	w.registry.RemoveAPIServiceToSync(service.Name)
}
