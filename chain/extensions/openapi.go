package extensions

import (
	"fmt"
	"net/http"
	"sync"

	restful "github.com/emicklei/go-restful/v3"
	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	apiextensionsopenapi "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/apiserver/pkg/server/routes"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/handler"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/kinproc/kinproc/chain/internal/openapi"
)

// names returns the names of the definitions, which the control planes of a process share.
var names = sync.OnceValue(func() *openapinamer.DefinitionNamer {
	return openapinamer.NewDefinitionNamer(apiextensionsapiserver.Scheme)
})

// The documents of OpenAPI v2 and v3 refer to definitions in different ways.
var (
	definitionsV2 = openapi.Shared(apiextensionsopenapi.GetOpenAPIDefinitions)
	definitionsV3 = openapi.Shared(apiextensionsopenapi.GetOpenAPIDefinitions)
)

// ownDocument is the OpenAPI v2 document of the server without custom resources. It is empty until
// somebody asks a server for its document. Then it is the same in all control planes of a process,
// and nothing changes it.
var ownDocument struct {
	once     sync.Once
	document spec.Swagger
}

// onDemand installs a handler that serves what is built from ownDocument.
type onDemand struct {
	paths     common.PathHandler
	container *restful.Container
	config    *common.Config
}

// Handle implements common.PathHandler.
func (d onDemand) Handle(path string, handler http.Handler) {
	d.paths.Handle(path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ownDocument.once.Do(func() {
			_, built := routes.OpenAPI{Config: d.config}.InstallV2(d.container,
				mux.NewPathRecorderMux("openapi-v2"))
			ownDocument.document = *built
		})
		handler.ServeHTTP(w, r)
	}))
}

// installOpenAPI serves the OpenAPI documents of the server's own kinds. To the document of v2, the
// server adds custom resources. Those of v3 are not built by the server but by [documents], because
// OpenAPIV3VersionedService is nil.
func installOpenAPI(s *genericapiserver.GenericAPIServer, config *genericapiserver.Config) error {
	container := s.Handler.GoRestfulContainer
	s.StaticOpenAPISpec = &ownDocument.document
	s.OpenAPIVersionedService = handler.NewOpenAPIService(s.StaticOpenAPISpec)
	s.OpenAPIVersionedService.RegisterOpenAPIVersionedService("/openapi/v2",
		onDemand{s.Handler.NonGoRestfulMux, container, config.OpenAPIConfig})
	own, err := openapi.NewDocuments(openapi.OfServices(container.RegisteredWebServices(),
		func(service *restful.WebService) http.Handler {
			return openapi.Build(service, config.OpenAPIV3Config)
		}))
	if err != nil {
		return fmt.Errorf("OpenAPI: %w", err)
	}
	own.Install(s.Handler.NonGoRestfulMux)
	return nil
}
