package extensions

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// crdWith returns a CRD of two versions whose schemas are JSON.
func crdWith(t *testing.T, v1, v2 string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	version := `{"name":"v","schema":{"openAPIV3Schema":%s}}`
	text := fmt.Sprintf(`{"spec":{"versions":[`+version+","+version+`]}}`, v1, v2)
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := json.Unmarshal([]byte(text), crd); err != nil {
		t.Fatal(err)
	}
	return crd
}

// schemaOf returns the schema of a version.
func schemaOf(crd *apiextensionsv1.CustomResourceDefinition, version int) *schemaProps {
	return crd.Spec.Versions[version].Schema.OpenAPIV3Schema
}

func same(a, b map[string]schemaProps) bool {
	return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer()
}

func TestEqualPropertiesAreShared(t *testing.T) {
	t.Parallel()
	const (
		leaf = `{"type":"object","properties":{"a":{"type":"string"},"b":{"default":"x"}}}`
		list = `{"type":"array","items":` + leaf + `}`
		tree = `{"type":"object","properties":{"l":` + list + `,"m":{"additionalProperties":` + leaf +
			`,"anyOf":[` + leaf + `]}}}`
	)
	first, second := crdWith(t, tree, tree), crdWith(t, list, leaf)
	firstBefore, secondBefore := first.DeepCopy(), second.DeepCopy()
	s := newSharer()
	s.share(first)
	s.share(second)
	if !reflect.DeepEqual(first, firstBefore) || !reflect.DeepEqual(second, secondBefore) {
		t.Fatal("sharing has changed a CRD")
	}
	if !same(schemaOf(first, 0).Properties, schemaOf(first, 1).Properties) {
		t.Error("two equal versions are not shared")
	}
	want := schemaOf(second, 1).Properties
	m := schemaOf(first, 0).Properties["m"]
	for where, got := range map[string]map[string]schemaProps{
		"items":                schemaOf(first, 0).Properties["l"].Items.Schema.Properties,
		"additionalProperties": m.AdditionalProperties.Schema.Properties,
		"anyOf":                m.AnyOf[0].Properties,
		"another CRD":          schemaOf(second, 0).Items.Schema.Properties,
	} {
		if !same(got, want) {
			t.Errorf("%s: equal properties are not shared", where)
		}
	}
	s.forget()
	third := crdWith(t, tree, leaf)
	s.share(third)
	if same(schemaOf(third, 0).Properties, schemaOf(first, 0).Properties) {
		t.Error("what was forgotten is still shared")
	}
}

// Properties that differ in one place only are different.
func TestDifferentPropertiesAreNotShared(t *testing.T) {
	t.Parallel()
	schema := func(property string) string { return `{"properties":{"a":` + property + `}}` }
	properties := []string{
		`{}`, `{"type":"string"}`, `{"type":"string","description":"d"}`,
		`{"type":"string","default":""}`,
		`{"maxLength":1}`, `{"maxLength":2}`, `{"nullable":true}`,
		`{"not":{"type":"string"}}`, `{"not":{}}`, `{"items":{"type":"string"}}`, `{"items":{}}`,
		`{"items":[{"type":"string"}]}`, `{"additionalProperties":true}`,
		`{"additionalProperties":false}`, `{"additionalProperties":{}}`,
		`{"additionalProperties":{"type":"string"}}`, `{"allOf":[{"type":"string"}]}`,
		`{"anyOf":[{"type":"string"}]}`, `{"oneOf":[{"type":"string"}]}`,
		`{"properties":{"b":{"type":"string"}}}`, `{"patternProperties":{"b":{"type":"string"}}}`,
		`{"definitions":{"b":{"type":"string"}}}`, `{"dependencies":{"b":["c"]}}`,
		`{"x-kubernetes-validations":[{"rule":"true"}]}`, `{"enum":["a"]}`, `{"enum":["b"]}`,
	}
	s := newSharer()
	for i, a := range properties {
		for _, b := range properties[:i] {
			crd := crdWith(t, schema(a), schema(b))
			before := crd.DeepCopy()
			s.share(crd)
			if same(schemaOf(crd, 0).Properties, schemaOf(crd, 1).Properties) ||
				!reflect.DeepEqual(crd, before) {
				t.Errorf("%s and %s are shared", a, b)
			}
		}
	}
}

// Earlier versions of a CRD take a bounded amount of memory, though each change is a single large
// part.
func TestPartsAreBounded(t *testing.T) {
	t.Parallel()
	s, large := newSharer(), strings.Repeat("x", 1<<10)
	s.limit = 16 << 10
	for i := range 100 {
		schema := fmt.Sprintf(`{"properties":{"a":{"description":"%d %s"}}}`, i, large)
		s.share(crdWith(t, schema, schema))
		if n := len(s.parts); n > 17 {
			t.Fatalf("%d parts of 1 KiB are remembered", n)
		}
	}
}
