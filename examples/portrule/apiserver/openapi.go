package apiserver

import (
	"maps"

	apiextensionsopenapi "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

const pkg = "github.com/kinproc/kinproc/examples/portrule/v1."

// friendly is pkg in the names of definitions.
const friendly = "com.github.kinproc.kinproc.examples.portrule.v1."

// definitions describes the types. In larger servers, openapi-gen generates this.
func definitions(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
	all := maps.Clone(apiextensionsopenapi.GetOpenAPIDefinitions(ref))
	of := func(name string) spec.Schema {
		return spec.Schema{SchemaProps: spec.SchemaProps{Ref: ref(name), Default: map[string]any{}}}
	}
	define := func(name string, properties map[string]spec.Schema, needs ...string) {
		d := common.OpenAPIDefinition{Dependencies: needs, Schema: spec.Schema{
			SchemaProps: spec.SchemaProps{Type: []string{"object"}, Properties: properties},
		}}
		all[pkg+name], all[friendly+name] = d, d
	}
	text, number := *spec.StringProperty(), *spec.Int32Property()
	objectMeta, listMeta := metav1.ObjectMeta{}.OpenAPIModelName(), metav1.ListMeta{}.OpenAPIModelName()
	rule := of(friendly + "PortRule")
	define("PortRuleSpec", map[string]spec.Schema{"protocol": text, "from": number, "to": number})
	define("PortRuleStatus", map[string]spec.Schema{"phase": text})
	define("PortRule", map[string]spec.Schema{
		"apiVersion": text, "kind": text, "metadata": of(objectMeta),
		"spec": of(friendly + "PortRuleSpec"), "status": of(friendly + "PortRuleStatus"),
	}, objectMeta, friendly+"PortRuleSpec", friendly+"PortRuleStatus")
	define("PortRuleList", map[string]spec.Schema{
		"apiVersion": text, "kind": text, "metadata": of(listMeta), "items": *spec.ArrayProperty(&rule),
	}, listMeta, friendly+"PortRule")
	return all
}
