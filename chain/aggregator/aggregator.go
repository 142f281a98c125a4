// Package aggregator is the first server of the chain. It knows every group version as an
// APIService. It proxies a request to the extension API server that the APIService names or, if the
// APIService names none, delegates it to the next server of the chain.
//
// Its names are for package server; see package chain.
package aggregator

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"sync"

	restful "github.com/emicklei/go-restful/v3"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/routes"
	"k8s.io/client-go/informers"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorapiserver "k8s.io/kube-aggregator/pkg/apiserver"
	aggregatorscheme "k8s.io/kube-aggregator/pkg/apiserver/scheme"
	aggregatoropenapi "k8s.io/kube-aggregator/pkg/generated/openapi"

	"github.com/kinproc/kinproc/chain/internal/catchup"
	"github.com/kinproc/kinproc/chain/internal/etcdstore"
	"github.com/kinproc/kinproc/chain/internal/openapi"
)

// Config is what the server needs besides the configuration that the chain's servers share.
type Config struct {
	Backend   *etcdstore.Backend
	Informers informers.SharedInformerFactory
	// ServiceResolver finds the address of an extension API server.
	ServiceResolver aggregatorapiserver.ServiceResolver
	// ProxyClientCertFile and ProxyClientKeyFile identify the aggregator to extension API servers.
	ProxyClientCertFile, ProxyClientKeyFile string
	// ProxyClientCertKept says that these files never change.
	ProxyClientCertKept bool
	// Dial, if set, connects to extension API servers.
	Dial utilnet.DialFunc
}

// RESTOptions returns the options to store APIServices under the same keys as kube-apiserver, as
// JSON.
func RESTOptions(backend *etcdstore.Backend) *etcdstore.Resources {
	return &etcdstore.Resources{
		Backend: backend,
		CodecOf: func(schema.GroupResource, runtime.Object) (etcdstore.Codec, error) {
			stored := apiregistrationv1.SchemeGroupVersion
			return etcdstore.Codec{
				Codec: aggregatorscheme.Codecs.LegacyCodec(stored), Versioner: stored,
			}, nil
		},
		PathOf: func(r schema.GroupResource) string { return r.Group + "/" + r.Resource },
	}
}

// names returns the names of the definitions, which the control planes of a process share.
var names = sync.OnceValue(func() *openapinamer.DefinitionNamer {
	return openapinamer.NewDefinitionNamer(aggregatorscheme.Scheme)
})

// The documents of OpenAPI v2 and v3 refer to definitions in different ways.
var (
	definitionsV2 = openapi.Shared(aggregatoropenapi.GetOpenAPIDefinitions)
	definitionsV3 = openapi.Shared(aggregatoropenapi.GetOpenAPIDefinitions)
)

// Server is the aggregator.
type Server struct {
	*aggregatorapiserver.APIAggregator
	// GenericAPIServer is the server that serves requests. After PrepareRun, that of APIAggregator
	// is another one.
	GenericAPIServer *genericapiserver.GenericAPIServer
	// OpenAPI is what the documents of the server's own kinds are built from. The server merges
	// them with those of its delegates, one of which has to serve them; see [Server.PrepareRun].
	OpenAPI openapi.Server

	client    *catchup.Client
	certKept  bool
	next      genericapiserver.DelegationTarget
	documents *documents
	paths     *servicePaths // after PrepareRun
}

// PrepareRun finishes the server, and returns what runs it. It leaves out the OpenAPI documents of
// the server's own kinds, which the method of APIAggregator would build at once.
func (s *Server) PrepareRun() (interface{ Run(context.Context) error }, error) {
	handler := s.GenericAPIServer.Handler
	handler.GoRestfulContainer = restful.NewContainer() // the documents describe its web services
	prepared, err := s.APIAggregator.PrepareRun()
	handler.GoRestfulContainer = s.OpenAPI.Container
	// The server looks at the paths of APIServices after its own. Most of its own are health
	// checks.
	s.paths = newServicePaths(s.APIRegistrationInformers.Apiregistration().V1().APIServices().Lister(),
		s.next.UnprotectedHandler())
	own := handler.NonGoRestfulMux
	own.NotFoundHandler(s.paths)
	own.Unregister("/")
	own.Unregister("/index.html")
	s.documents.install(own)
	routes.Index{}.Install(routes.ListedPathProviders{s.GenericAPIServer, s.paths}, own)
	// From now on, APIAggregator needs little more than these paths. The goroutine that registers
	// them may run for a moment after the server has stopped and its handlers have been forgotten,
	// so it gets them in a server of its own.
	s.APIAggregator.GenericAPIServer = &genericapiserver.GenericAPIServer{
		Handler:               &genericapiserver.APIServerHandler{NonGoRestfulMux: s.paths.later},
		APIServerID:           s.GenericAPIServer.APIServerID,
		StorageVersionManager: s.GenericAPIServer.StorageVersionManager,
	}
	ended := []string{documentsHook}
	if s.certKept {
		ended = append(ended, reloadHook)
	}
	s.endHooks(ended)
	return prepared, err
}

const (
	// documentsHook runs a controller in whose place s.documents is. See there.
	documentsHook = "apiservice-openapiv3-controller"
	// reloadHook follows the files of the client certificate, by fsnotify. Users may have few of
	// the kernel's watches, and in a bubble of testing/synctest, no time passes while a goroutine
	// waits for them.
	reloadHook = "aggregator-reload-proxy-client-cert"
)

// endHooks runs hooks alone, with a context that has ended, so that they end at once and leave
// nothing behind. Without their hooks, the goroutines of the controllers' queues would never end.
func (s *Server) endHooks(names []string) {
	hooks := s.GenericAPIServer.PostStartHooks()
	others := maps.Clone(hooks)
	for _, name := range names {
		delete(others, name)
	}
	for name := range others {
		delete(hooks, name)
	}
	ended, end := context.WithCancel(context.Background())
	end()
	s.GenericAPIServer.RunPostStartHooks(ended)
	clear(hooks)
	maps.Copy(hooks, others)
}

// New returns the server. Generic is the server's own copy of the shared configuration.
func New(
	generic genericapiserver.Config, config Config, next genericapiserver.DelegationTarget,
) (*Server, error) {
	generic.RESTOptionsGetter = RESTOptions(config.Backend)
	generic.OpenAPIConfig, generic.OpenAPIV3Config = openapi.Configs(names(),
		definitionsV2, definitionsV3)
	// The aggregator serves the merged specs of all servers instead.
	generic.SkipOpenAPIInstallation = true
	generic.Serializer = aggregatorscheme.Codecs

	c := aggregatorapiserver.Config{
		GenericConfig: &genericapiserver.RecommendedConfig{
			Config:                generic,
			SharedInformerFactory: config.Informers,
		},
		ExtraConfig: aggregatorapiserver.ExtraConfig{
			ProxyClientCertFile:       config.ProxyClientCertFile,
			ProxyClientKeyFile:        config.ProxyClientKeyFile,
			ServiceResolver:           config.ServiceResolver,
			ProxyTransport:            &http.Transport{DialContext: config.Dial},
			RejectForwardingRedirects: true,
			// watchAvailability starts a replacement.
			DisableRemoteAvailableConditionController: true,
		},
	}
	s, err := c.Complete().NewWithDelegate(next)
	if err != nil {
		return nil, fmt.Errorf("aggregator: %w", err)
	}
	documents := newDocuments(s.APIRegistrationInformers.Apiregistration().V1().APIServices().Lister(),
		next)
	if err := watchAvailability(s, config, documents); err != nil {
		return nil, fmt.Errorf("aggregator: %w", err)
	}
	client, err := catchup.NewClient(generic.LoopbackClientConfig)
	if err != nil {
		return nil, fmt.Errorf("aggregator: %w", err)
	}
	return &Server{
		APIAggregator:    s,
		GenericAPIServer: s.GenericAPIServer,
		OpenAPI: openapi.Server{
			Container: s.GenericAPIServer.Handler.GoRestfulContainer,
			V2:        generic.OpenAPIConfig,
			V3:        generic.OpenAPIV3Config,
		},
		client:    client,
		certKept:  config.ProxyClientCertKept,
		next:      next,
		documents: documents,
	}, nil
}
