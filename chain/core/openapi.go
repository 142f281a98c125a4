package core

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	restful "github.com/emicklei/go-restful/v3"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/apiserver/pkg/server/routes"
	"k8s.io/kube-openapi/pkg/aggregator"

	"github.com/kinproc/kinproc/chain/internal/openapi"
)

// InstallOpenAPI serves the OpenAPI documents of everything installed so far, and those of another
// server's own kinds. The document of v2 is built by its first request too; see
// [openapi.Documents].
func (s *Server) InstallOpenAPI(other openapi.Server) error {
	container := s.Handler.GoRestfulContainer
	build := func(service *restful.WebService) http.Handler {
		models.building.Lock()
		defer models.building.Unlock()
		return openapi.Build(service, withDefinitions(s.openAPIV3))
	}
	sources := openapi.OfServices(container.RegisteredWebServices(), build)
	others := openapi.OfServices(other.Container.RegisteredWebServices(),
		func(service *restful.WebService) http.Handler { return openapi.Build(service, other.V3) })
	for path, source := range others {
		if _, ok := sources[path]; !ok {
			sources[path] = source
		}
	}
	for root, v := range s.onDemand.versions {
		sources[strings.TrimPrefix(root, "/")] = openapi.Source{
			Describes: append([]string{root}, v.resources...),
			Handler: func() http.Handler {
				if err := v.install(); err != nil {
					return refusing(s.GenericAPIServer, err)
				}
				services := container.RegisteredWebServices()
				i := slices.IndexFunc(services, func(ws *restful.WebService) bool {
					return ws.RootPath() == root
				})
				return build(services[i])
			},
		}
	}
	documents, err := openapi.NewDocuments(sources)
	if err != nil {
		return fmt.Errorf("core: %w", err)
	}
	documents.Install(s.Handler.NonGoRestfulMux)
	v2 := sync.OnceValue(func() http.Handler {
		if err := s.onDemand.installAll(); err != nil {
			return refusing(s.GenericAPIServer, err)
		}
		m := mux.NewPathRecorderMux("openapi-v2")
		service, document := routes.OpenAPI{Config: s.openAPI}.InstallV2(container, m)
		_, more := routes.OpenAPI{Config: other.V2}.InstallV2(other.Container,
			mux.NewPathRecorderMux("openapi-v2"))
		err := aggregator.MergeSpecsIgnorePathConflictRenamingDefinitionsAndParameters(document, more)
		if err == nil {
			err = service.UpdateSpec(document)
		}
		if err != nil {
			return refusing(s.GenericAPIServer, err)
		}
		return m
	})
	s.Handler.NonGoRestfulMux.Handle("/openapi/v2", http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) { v2().ServeHTTP(w, r) }))
	return nil
}

// refusing answers all requests with an error.
func refusing(s *genericapiserver.GenericAPIServer, err error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { refuse(w, r, s, err) })
}
