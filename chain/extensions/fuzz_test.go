package extensions

import (
	"testing"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
)

// FuzzCustomResourceDefinition decodes and validates CRDs, with their schemas and the CEL
// expressions in them.
func FuzzCustomResourceDefinition(f *testing.F) {
	const head = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"as.b.example"},
		"spec":{"group":"b.example","scope":"Namespaced","names":{"plural":"as","kind":"A"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":`
	for _, schema := range []string{
		`{"type":"object"}`,
		`{"type":"object","properties":{"spec":{"type":"object","x-kubernetes-validations":[{"rule":"self.n > 0","messageExpression":"'n is ' + string(self.n)"}],"properties":{"n":{"type":"integer","default":1}}}}}`,
		`{"type":"object","properties":{"l":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"],"items":{"type":"object","required":["k"],"properties":{"k":{"type":"string","pattern":"("}}}}}}`,
		`{"type":"object","x-kubernetes-preserve-unknown-fields":true,"anyOf":[{"properties":{"a":{"enum":[1,"a",null]}}}],"properties":{"metadata":{"type":"object"},"i":{"x-kubernetes-int-or-string":true}}}`,
	} {
		f.Add([]byte(head + schema + `},"additionalPrinterColumns":[{"name":"N","type":"integer","jsonPath":".spec.n"}],"subresources":{"status":{},"scale":{"specReplicasPath":".spec.n","statusReplicasPath":".status.n"}}}]}}`))
	}
	for _, version := range []string{
		`"schema":{},"selectableFields":[{"jsonPath":".a"}]`,
		`"schema":{"openAPIV3Schema":{"type":"object","definitions":{"a":{}}}},"selectableFields":[{"jsonPath":".a"}]`,
		`"schema":{"openAPIV3Schema":{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"array","items":{"type":"string"}}}}},"selectableFields":[{"jsonPath":".a"},{"jsonPath":".b[0]"},{"jsonPath":" "}]`,
	} {
		const start = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"as.b.example"},
			"spec":{"group":"b.example","scope":"Namespaced","names":{"plural":"as","kind":"A"},"versions":[{"name":"v1","served":true,"storage":true,`
		f.Add([]byte(start + version + `}]}}`))
		f.Add([]byte(start + version +
			`},{"name":"v2","served":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`))
	}
	decoder := apiextensionsapiserver.Codecs.UniversalDecoder()
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<14 {
			return
		}
		start := time.Now()
		obj, _, err := decoder.Decode(data, nil, nil)
		definition, ok := obj.(*apiextensions.CustomResourceDefinition)
		if err != nil || !ok || len(checkSelectableFields(&definition.Spec)) > 0 {
			return
		}
		if errs := validation.ValidateCustomResourceDefinition(t.Context(), definition); len(errs) == 0 {
			definition.ResourceVersion = "1"
			for _, err := range validation.ValidateCustomResourceDefinitionUpdate(t.Context(), definition,
				definition.DeepCopy()) {
				t.Errorf("valid on create, but not on an unchanged update: %v", err)
			}
		}
		if took := time.Since(start); took > 20*time.Second {
			t.Errorf("decoding and validation took %s", took)
		}
	})
}
