// Package openapi holds the OpenAPI definitions of everything that the core server serves and of the
// types around it: k8s.io/api's served versions, metadata, quantities, CustomResourceDefinitions and APIServices.
// Server-side apply, kubectl explain, field validation and /openapi read them.
//
//	config.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(
//		openapi.GetOpenAPIDefinitions, apiopenapi.NewDefinitionNamer(scheme))
//
// kube-openapi's openapi-gen, a tool of this module, writes them from the types' sources: `make generate` does it again,
// `make verify` fails when the result differs. The list of packages is in the Makefile. Definitions are keyed by model name
// ("io.k8s.api.core.v1.Pod") and building all of them takes some milliseconds, so call [GetOpenAPIDefinitions] once.
package definitions
