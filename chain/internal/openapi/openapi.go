// Package openapi configures the OpenAPI documents of the chain's servers. As in kube-apiserver,
// all servers describe themselves as one API.
package openapi

import (
	"maps"
	"slices"
	"sync"

	restful "github.com/emicklei/go-restful/v3"
	"k8s.io/apimachinery/pkg/runtime"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// groupVersionKinds is the extension that lists the kinds that a definition describes.
const groupVersionKinds = "x-kubernetes-group-version-kind"

// Server is what the documents of a server are built from.
type Server struct {
	Container *restful.Container
	V2        *common.Config
	V3        *common.OpenAPIV3Config
}

// Configs returns the OpenAPI v2 and v3 configurations of a server. The definitions for each of the
// two describe the Go types of its kinds.
func Configs(
	names *openapinamer.DefinitionNamer, definitionsV2, definitionsV3 common.GetOpenAPIDefinitions,
) (*common.Config, *common.OpenAPIV3Config) {
	bearer := &spec.SecurityScheme{SecuritySchemeProps: spec.SecuritySchemeProps{
		Description: "A token in the form 'Bearer TOKEN'",
		Type:        "apiKey",
		Name:        "authorization",
		In:          "header",
	}}
	v2 := genericapiserver.DefaultOpenAPIConfig(definitionsV2, names)
	v2.Info.Title = "Kubernetes"
	v2.SecurityDefinitions = &spec.SecurityDefinitions{"BearerToken": bearer}
	v2.GetDefinitionName = external(v2.GetDefinitionName)

	v3 := genericapiserver.DefaultOpenAPIV3Config(definitionsV3, names)
	v3.Info.Title = "Kubernetes"
	v3.SecuritySchemes = spec3.SecuritySchemes{
		"BearerToken": {SecuritySchemeProps: spec3.SecuritySchemeProps{
			Description: bearer.Description, Type: bearer.Type, Name: bearer.Name, In: bearer.In,
		}},
	}
	v3.GetDefinitionName = external(v3.GetDefinitionName)
	return v2, v3
}

// Shared returns a function that calls get once and remembers the definitions, so that the control
// planes of a process share them: they describe Go types. Each caller of the function gets a map
// with extensions of its own, because the builders of documents change these. All callers must pass
// the same references.
func Shared(get common.GetOpenAPIDefinitions) common.GetOpenAPIDefinitions {
	var once sync.Once
	var definitions map[string]common.OpenAPIDefinition
	return func(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
		once.Do(func() { definitions = get(ref) })
		return withOwnExtensions(definitions)
	}
}

// withOwnExtensions returns the definitions with copies of their extensions.
func withOwnExtensions(
	definitions map[string]common.OpenAPIDefinition,
) map[string]common.OpenAPIDefinition {
	own := make(map[string]common.OpenAPIDefinition, len(definitions))
	for name, d := range definitions {
		d.Schema.Extensions = maps.Clone(d.Schema.Extensions)
		own[name] = d
	}
	return own
}

// external removes internal versions from the extensions that nameOf returns, because clients must
// not see them. In the core-like server, the internal version of a kind has the same Go type as a
// served version.
func external(
	nameOf func(string) (string, spec.Extensions),
) func(string) (string, spec.Extensions) {
	return func(typeName string) (string, spec.Extensions) {
		name, extensions := nameOf(typeName)
		all, ok := extensions[groupVersionKinds].([]any)
		if !ok {
			return name, extensions
		}
		served := slices.DeleteFunc(all, func(kind any) bool {
			gvk, ok := kind.(map[string]any)
			return ok && gvk["version"] == runtime.APIVersionInternal
		})
		if extensions[groupVersionKinds] = served; len(served) == 0 {
			delete(extensions, groupVersionKinds)
		}
		return name, extensions
	}
}
