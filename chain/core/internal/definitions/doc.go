// Package definitions holds the OpenAPI definitions of everything that the core server serves, and
// of the types around it: the served versions of k8s.io/api, metadata, quantities,
// CustomResourceDefinitions and APIServices.
//
// The program openapi-gen of kube-openapi, a tool of this module, generates them from the sources
// of the types. `make generate` runs it, and `make verify` fails if the result differs. The list of
// packages is in the Makefile. The keys are model names, such as "io.k8s.api.core.v1.Pod". To build
// all definitions takes some milliseconds, so call [GetOpenAPIDefinitions] once.
package definitions
