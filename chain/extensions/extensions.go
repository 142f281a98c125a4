// Package extensions is the third server of the chain: CRDs, and the groups that they define at run
// time.
//
// It is apiextensions-apiserver without the delay of two seconds before the first object of a new
// kind; see [New]. Its names are for package server; see package chain.
package extensions

import (
	"fmt"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsv1beta1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	apiextensionsinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/kinproc/kinproc/chain/internal/catchup"
	"github.com/kinproc/kinproc/chain/internal/etcdstore"
	"github.com/kinproc/kinproc/chain/internal/openapi"
)

// Config is what the server needs besides the configuration that the chain's servers share.
type Config struct {
	Backend             *etcdstore.Backend
	Informers           informers.SharedInformerFactory
	ServiceResolver     webhook.ServiceResolver
	AuthResolverWrapper webhook.AuthenticationInfoResolverWrapper
}

// Server serves CRDs and custom resources.
type Server struct {
	*genericapiserver.GenericAPIServer
	// Informers are the informers of CRDs.
	Informers apiextensionsinformers.SharedInformerFactory

	backend   *etcdstore.Backend
	client    *catchup.Client
	discovery *discovery
}

// New returns the server. Generic is the server's own copy of the shared configuration.
//
// For the first two seconds, a CRD appears older in the server's informer than in etcd.
// apiextensions-apiserver takes a CRD's age from the informer, and delays the first create
// for a young CRD so that other API servers can learn of it. Here there are no other servers
// that a client could reach at the same address.
func New(
	generic genericapiserver.Config, config Config, next genericapiserver.DelegationTarget,
) (*Server, error) {
	described := newDiscovery()
	generic.RESTOptionsGetter = &etcdstore.Resources{
		Backend: config.Backend,
		CodecOf: func(schema.GroupResource, runtime.Object) (etcdstore.Codec, error) {
			// As in kube-apiserver: large CRDs are shorter in v1beta1.
			codec := apiextensionsapiserver.Codecs.LegacyCodec(
				apiextensionsv1beta1.SchemeGroupVersion, apiextensionsv1.SchemeGroupVersion)
			return etcdstore.Codec{Codec: codec, Versioner: apiextensionsv1beta1.SchemeGroupVersion}, nil
		},
		PathOf: pathOf,
		Wrap: func(store storage.Interface, _ schema.GroupResource) storage.Interface {
			return definitionStore{store, described}
		},
	}
	generic.AggregatedDiscoveryGroupManager = discoveryWriter{
		ResourceManager: generic.AggregatedDiscoveryGroupManager, discovery: described,
	}
	generic.OpenAPIConfig, generic.OpenAPIV3Config = openapi.Configs(names(),
		definitionsV2, definitionsV3)
	generic.SkipOpenAPIInstallation = true // installOpenAPI installs the documents
	generic.Serializer = apiextensionsapiserver.Codecs
	generic.AdmissionControl = admission.NewChainHandler(definitions{}, generic.AdmissionControl)

	library := apiextensionsapiserver.Config{
		GenericConfig: &genericapiserver.RecommendedConfig{
			Config:                generic,
			SharedInformerFactory: config.Informers,
		},
		ExtraConfig: apiextensionsapiserver.ExtraConfig{
			CRDRESTOptionsGetter: &etcdstore.Resources{
				Backend: config.Backend,
				CodecOf: func(schema.GroupResource, runtime.Object) (etcdstore.Codec, error) {
					// The handler wraps the codec with the versions of the CRD.
					return etcdstore.Codec{Codec: unstructured.UnstructuredJSONScheme}, nil
				},
				PathOf: pathOf,
				Wrap:   config.Backend.Guard(whileDeleted(config.Backend)),
			},
			MasterCount:         1,
			ServiceResolver:     config.ServiceResolver,
			AuthResolverWrapper: config.AuthResolverWrapper,
		},
	}
	server, err := library.Complete().New(next)
	if err != nil {
		return nil, fmt.Errorf("extensions: %w", err)
	}
	crds := server.Informers.Apiextensions().V1().CustomResourceDefinitions()
	if err := described.follow(crds); err != nil {
		return nil, fmt.Errorf("extensions: %w", err)
	}
	schemas := newSharer()
	if err := crds.Informer().SetTransform(func(obj any) (any, error) {
		return inInformer(obj, schemas), nil
	}); err != nil {
		return nil, fmt.Errorf("extensions: %w", err)
	}
	if _, err := crds.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		DeleteFunc: func(any) { schemas.forget() },
	}); err != nil {
		return nil, fmt.Errorf("extensions: %w", err)
	}
	if err := installOpenAPI(server.GenericAPIServer, &generic); err != nil {
		return nil, fmt.Errorf("extensions: %w", err)
	}
	client, err := catchup.NewClient(generic.LoopbackClientConfig)
	if err != nil {
		return nil, fmt.Errorf("extensions: %w", err)
	}
	return &Server{
		GenericAPIServer: server.GenericAPIServer, Informers: server.Informers,
		backend: config.Backend, client: client, discovery: described,
	}, nil
}

func pathOf(r schema.GroupResource) string { return r.Group + "/" + r.Resource }

// youth is the age below which apiextensions-apiserver delays creates.
const youth = 2 * time.Second

// inInformer changes an object for the informer. It backdates the Established condition of a young
// CRD, so that creates are not delayed. It drops the managedFields, which are often larger
// than the rest and which nobody reads there; an update without them leaves them as they are. Parts
// of schemas that other CRDs have, too, are shared.
func inInformer(obj any, schemas *sharer) any {
	crd, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
	if !ok {
		return obj
	}
	crd.ManagedFields = nil
	schemas.share(crd)
	for i := range crd.Status.Conditions {
		c := &crd.Status.Conditions[i]
		if c.Type == apiextensionsv1.Established && time.Since(c.LastTransitionTime.Time) < youth {
			at := c.LastTransitionTime.Time
			if now := time.Now(); at.After(now) { // the clock has been set back
				at = now
			}
			c.LastTransitionTime.Time = at.Add(-youth)
		}
	}
	return crd
}
