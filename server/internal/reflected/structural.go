package reflected

import (
	"reflect"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// schemaOf is a schema of a CRD, which describes a value.
type schemaOf = apiextensionsv1.JSONSchemaProps

// Structural returns the schema of a CRD for a struct. It has no references and no descriptions.
// Where a type contains itself, everything is accepted.
func Structural(t reflect.Type) (*schemaOf, error) {
	known := map[string]common.OpenAPIDefinition{}
	ref := func(name string) spec.Ref { return spec.MustCreateRef(refPrefix + name) }
	if err := Definitions(known, ref, t); err != nil {
		return nil, err
	}
	s := expand(spec.RefSchema(refPrefix+Name(t)), known, nil)
	return &s, nil
}

const refPrefix = "#/definitions/"

// quantityPattern matches quantities that are strings: 1, 0.5, 100m, 2Gi, 1e3.
const quantityPattern = `^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)` +
	`([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$`

// expand returns the schema of a CRD for a schema within the definitions of these names.
func expand(s *spec.Schema, known map[string]common.OpenAPIDefinition, within []string) schemaOf {
	if ref := s.Ref.String(); ref != "" {
		name := strings.TrimPrefix(ref, refPrefix)
		definition := known[name].Schema
		switch {
		case name == Name(reflect.TypeFor[resource.Quantity]()):
			return schemaOf{XIntOrString: true, Pattern: quantityPattern}
		case name == Name(reflect.TypeFor[runtime.RawExtension]()), slices.Contains(within, name):
			return schemaOf{Type: "object", XPreserveUnknownFields: new(true)}
		}
		return expand(&definition, known, append(slices.Clip(within), name))
	}
	if s.Format == "int-or-string" {
		return schemaOf{XIntOrString: true}
	}
	var to schemaOf
	if len(s.Type) > 0 {
		to.Type = s.Type[0]
		if to.Type != "number" { // CRDs know no formats of numbers
			to.Format = s.Format
		}
	}
	if _, ok := s.Extensions[preserve]; ok || to.Type == "" {
		to.XPreserveUnknownFields = new(true)
	}
	to.Required = s.Required
	if s.Properties != nil {
		to.Properties = map[string]schemaOf{}
	}
	for name, property := range s.Properties {
		to.Properties[name] = expand(&property, known, within)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		values := expand(s.AdditionalProperties.Schema, known, within)
		to.AdditionalProperties = &apiextensionsv1.JSONSchemaPropsOrBool{
			Allows: true, Schema: &values,
		}
	}
	if s.Items != nil && s.Items.Schema != nil {
		items := expand(s.Items.Schema, known, within)
		to.Items = &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &items}
	}
	return to
}
