package aggregator

import (
	"fmt"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	crdlisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/tools/cache"
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
// versions, which are known from the start, and the versions that CRDs
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
	definitions, err := watchDefinitions(crds, registry)
	if err != nil {
		return err
	}
	if err := s.GenericAPIServer.AddBootSequenceHealthChecks(newCompletion(services,
		wanted, definitions)); err != nil {
		return err
	}
	return s.GenericAPIServer.AddPostStartHook("kube-apiserver-autoregistration",
		func(hook genericapiserver.PostStartHookContext) error {
			go func() {
				// The versions of existing CRDs are part of the first sync.
				select {
				case <-definitions:
				case <-hook.Done():
				}
				registry.Run(1, hook.Done()) // also shuts down its queue
			}()
			return recreateDeleted(hook, services, client.ApiregistrationV1().APIServices(), wanted)
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

// ServeLocal installs the paths of local versions. The aggregator would install them when it has
// read their APIServices, which is later in the start. ServeLocal must be called after PrepareRun
// and before the server's hooks run.
func (s *Server) ServeLocal(local []schema.GroupVersion) error {
	services := make([]*apiregistrationv1.APIService, len(local))
	for i, gv := range local {
		group, version := priorities(gv)
		services[i] = newAPIService(gv, group, version)
	}
	return s.serveAtStart(services)
}

// ServeRegistered installs the paths of the APIServices that the informer has, which must have
// synced. The aggregator would install them later in the start. ServeRegistered must be called
// after PrepareRun and before the server's hooks run.
func (s *Server) ServeRegistered() error {
	services, err := s.APIRegistrationInformers.Apiregistration().V1().APIServices().Lister().List(
		labels.Everything())
	if err != nil {
		return fmt.Errorf("aggregator: %w", err)
	}
	return s.serveAtStart(services)
}

// serveAtStart installs the paths of APIServices.
func (s *Server) serveAtStart(services []*apiregistrationv1.APIService) error {
	handler := s.APIAggregator.GenericAPIServer.Handler
	defer func() { handler.NonGoRestfulMux = s.paths.later }()
	for _, service := range services {
		handler.NonGoRestfulMux = s.paths.table(service.Spec.Group)
		if err := s.AddAPIService(service); err != nil {
			return fmt.Errorf("aggregator: %s: %w", service.Name, err)
		}
	}
	return nil
}

// watchDefinitions tells the registry which versions the CRDs serve. The channel that it returns is
// closed when the registry knows those of existing CRDs.
func watchDefinitions(
	crds crdinformers.CustomResourceDefinitionInformer,
	registry autoregister.AutoAPIServiceRegistration,
) (synced <-chan struct{}, err error) {
	changed := func(obj any) {
		if crd, ok := lastState(obj).(*apiextensionsv1.CustomResourceDefinition); ok {
			for _, v := range crd.Spec.Versions {
				register(crds.Lister(), registry, schema.GroupVersion{Group: crd.Spec.Group, Version: v.Name})
			}
		}
	}
	handler, err := crds.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: changed,
		// The old versions too, because the new CRD may have dropped some.
		UpdateFunc: func(old, obj any) { changed(old); changed(obj) },
		DeleteFunc: changed,
	})
	if err != nil {
		return nil, fmt.Errorf("watch CRDs: %w", err)
	}
	return handler.HasSyncedChecker().Done(), nil
}

// register tells the registry whether a CRD serves a version.
func register(
	crds crdlisters.CustomResourceDefinitionLister,
	registry autoregister.AutoAPIServiceRegistration, gv schema.GroupVersion,
) {
	all, err := crds.List(labels.Everything())
	if err != nil {
		return // cannot happen: the lister reads from memory
	}
	service := newAPIService(gv, customGroupPriority, customVersionPriority)
	if slices.ContainsFunc(all, func(crd *apiextensionsv1.CustomResourceDefinition) bool {
		return crd.Spec.Group == gv.Group && apihelpers.HasServedCRDVersion(crd, gv.Version)
	}) {
		registry.AddAPIServiceToSync(service)
	} else {
		registry.RemoveAPIServiceToSync(service.Name)
	}
}
