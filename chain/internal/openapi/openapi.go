// Package openapi says how the servers of the chain describe themselves in their OpenAPI documents: as one API, as kube-apiserver does.
package openapi

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// groupVersionKinds is the extension in which a definition lists the kinds that it describes.
const groupVersionKinds = "x-kubernetes-group-version-kind"

// Configs are those of the documents, versions 2 and 3, of a server whose kinds are in scheme. Definitions describe their Go types.
func Configs(scheme *runtime.Scheme, definitions common.GetOpenAPIDefinitions) (*common.Config, *common.OpenAPIV3Config) {
	namer := openapinamer.NewDefinitionNamer(scheme)
	bearer := &spec.SecurityScheme{SecuritySchemeProps: spec.SecuritySchemeProps{
		Description: "A token in the form 'Bearer TOKEN'",
		Type:        "apiKey",
		Name:        "authorization",
		In:          "header",
	}}
	v2 := genericapiserver.DefaultOpenAPIConfig(definitions, namer)
	v2.Info.Title = "Kubernetes"
	v2.SecurityDefinitions = &spec.SecurityDefinitions{"BearerToken": bearer}
	v2.GetDefinitionName = external(v2.GetDefinitionName)

	v3 := genericapiserver.DefaultOpenAPIV3Config(definitions, namer)
	v3.Info.Title = "Kubernetes"
	v3.SecuritySchemes = spec3.SecuritySchemes{"BearerToken": {SecuritySchemeProps: spec3.SecuritySchemeProps{
		Description: bearer.Description, Type: bearer.Type, Name: bearer.Name, In: bearer.In,
	}}}
	v3.GetDefinitionName = external(v3.GetDefinitionName)
	return v2, v3
}

// external leaves internal versions out of the extensions that nameOf makes, which are no clients' business: the core-like server's have the Go types of a served version.
func external(nameOf func(string) (string, spec.Extensions)) func(string) (string, spec.Extensions) {
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
