package extension

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	apiextensionsopenapi "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/kube-openapi/pkg/common"
	openapiutil "k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/kinproc/kinproc/server/internal/reflected"
)

// groupVersionKinds is the extension that lists the kinds that a definition describes.
const groupVersionKinds = "x-kubernetes-group-version-kind"

// applyOpenAPI sets the OpenAPI documents of config.
func (s *Server) applyOpenAPI(config *genericapiserver.Config, scheme *runtime.Scheme) error {
	models := newModels(scheme)
	get := func(ref common.ReferenceCallback) (map[string]common.OpenAPIDefinition, error) {
		return models.definitions(ref, s.options.OpenAPI)
	}
	// Fail now rather than in the documents.
	if _, err := get(func(string) spec.Ref { return spec.Ref{} }); err != nil {
		return err
	}
	complete := func(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
		definitions, _ := get(ref)
		return definitions
	}
	namer := openapinamer.NewDefinitionNamer()
	v2 := genericapiserver.DefaultOpenAPIConfig(complete, namer)
	v2.Info.Title = s.options.Name
	v2.SecurityDefinitions = s.access.security
	v2.GetDefinitionName = models.name
	v3 := genericapiserver.DefaultOpenAPIV3Config(complete, namer)
	v3.Info.Title = s.options.Name
	v3.GetDefinitionName = models.name
	config.OpenAPIConfig, config.OpenAPIV3Config = v2, v3
	return nil
}

// models knows the names of the definitions of Go types.
type models struct {
	types []reflect.Type
	// names has the name for the canonical name of a type that does not name its definition.
	names map[string]string
	// kinds has the kinds that a definition describes.
	kinds map[string][]any
}

func newModels(scheme *runtime.Scheme) *models {
	m := &models{names: map[string]string{}, kinds: map[string][]any{}}
	known := scheme.AllKnownTypes()
	gvks := slices.SortedFunc(maps.Keys(known), func(a, b schema.GroupVersionKind) int {
		return strings.Compare(a.String(), b.String())
	})
	for _, gvk := range gvks {
		t := known[gvk]
		name := reflected.Name(t)
		m.names[openapiutil.GetCanonicalTypeName(reflect.New(t).Interface())] = name
		// The internal version of a kind has the type of a served version.
		if gvk.Version == runtime.APIVersionInternal {
			continue
		}
		m.types = append(m.types, t)
		m.kinds[name] = append(m.kinds[name], map[string]any{
			"group": gvk.Group, "version": gvk.Version, "kind": gvk.Kind,
		})
	}
	return m
}

// name returns the name of a definition by that of the type, with its extensions.
func (m *models) name(typeName string) (string, spec.Extensions) {
	name := typeName
	if friendly, ok := m.names[typeName]; ok {
		name = friendly
	}
	if kinds := m.kinds[name]; len(kinds) > 0 {
		return name, spec.Extensions{groupVersionKinds: slices.Clone(kinds)}
	}
	return name, nil
}

// definitions returns the definitions of all types: the given ones, those of the types that every
// API server has, and those made by reflection.
func (m *models) definitions(
	ref common.ReferenceCallback, given common.GetOpenAPIDefinitions,
) (map[string]common.OpenAPIDefinition, error) {
	all := apiextensionsopenapi.GetOpenAPIDefinitions(ref)
	if given != nil {
		maps.Copy(all, friendly(given, ref))
	}
	if err := reflected.Definitions(all, ref, m.types...); err != nil {
		return nil, err
	}
	for name, definition := range all {
		for _, used := range definition.Dependencies {
			if _, ok := all[used]; !ok {
				return nil, fmt.Errorf("OpenAPI definition %s refers to %s, which has no definition",
					name, used)
			}
		}
	}
	// Routes ask for types by their canonical names.
	for canonical, name := range m.names {
		if _, ok := all[canonical]; !ok {
			all[canonical] = all[name]
		}
	}
	return all, nil
}

// friendly returns the given definitions by the names that definitions have in the documents.
// openapi-gen uses them for types with a method OpenAPIModelName that it knows of, and otherwise
// the Go name, even for metav1.ObjectMeta.
func friendly(
	given common.GetOpenAPIDefinitions, ref common.ReferenceCallback,
) map[string]common.OpenAPIDefinition {
	all := map[string]common.OpenAPIDefinition{}
	for name, definition := range given(func(name string) spec.Ref {
		return ref(openapiutil.ToRESTFriendlyName(name))
	}) {
		for i, used := range definition.Dependencies {
			definition.Dependencies[i] = openapiutil.ToRESTFriendlyName(used)
		}
		all[openapiutil.ToRESTFriendlyName(name)] = definition
	}
	return all
}
