package conformance_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/server/servertest"
)

const (
	openAPIRecording  = "testdata/openapi.txt.gz"
	openAPIExceptions = "testdata/openapi-exceptions.txt"
)

// TestOpenAPIAsOfKubeAPIServer compares the OpenAPI documents, v2 and v3, with the recorded
// documents of a kube-apiserver: the operations of every path, and the fields of every kind with
// their types. Descriptions are not compared. testdata/openapi-exceptions.txt lists the expected
// differences.
func TestOpenAPIAsOfKubeAPIServer(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, servertest.WithoutControllers)
	want := expectedFacts(t, openAPIRecording, openAPIExceptions)
	v2, v3 := openAPIFacts(t, s.RESTConfig())
	for version, got := range map[string]facts{"v2": v2, "v3": v3} {
		for _, line := range want.differences(got) {
			t.Errorf("%s: %s", version, line)
		}
	}
}

// openAPIFacts returns what the documents of both versions say.
func openAPIFacts(t *testing.T, config *rest.Config) (v2, v3 facts) {
	t.Helper()
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = 1000, 1000
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	get := func(path string) any {
		data, err := client.Discovery().RESTClient().Get().AbsPath(path).
			SetHeader("Accept", "application/json").DoRaw(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var document any
		if err := json.Unmarshal(data, &document); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		return document
	}
	v2, v3 = facts{}, facts{}
	v2.addDocument(get("/openapi/v2"))
	for path := range at(get("/openapi/v3"), "paths").(map[string]any) {
		v3.addDocument(get("/openapi/v3/" + path))
	}
	return v2, v3
}

// addDocument adds what both versions of a document say.
func (f facts) addDocument(document any) {
	for url, item := range fields(at(document, "paths")) {
		shared := parameters(document, at(item, "parameters"))
		for method, operation := range fields(item) {
			if method == "parameters" {
				continue
			}
			names := append(slices.Clone(shared), parameters(document, at(operation, "parameters"))...)
			slices.Sort(names)
			f[fmt.Sprintf("%s %s %v %v %s (%s) %s",
				strings.ToUpper(method), url, at(operation, "operationId"),
				at(operation, "x-kubernetes-action"), kindOf(at(operation, "x-kubernetes-group-version-kind")),
				strings.Join(names, " "),
				strings.Join(slices.Sorted(maps.Keys(fields(at(operation, "responses")))), " "))] = true
		}
	}
	definitions := at(document, "definitions")
	if definitions == nil {
		definitions = at(document, "components", "schemas")
	}
	for name, definition := range fields(definitions) {
		f.addDefinition(name, definition)
	}
}

func (f facts) addDefinition(name string, definition any) {
	// Of the apimachinery definitions, only the fields are compared: how many kinds a definition
	// lists depends on whether the document covers one group version or all, and quantities have a
	// type in v2 only.
	if !strings.HasPrefix(name, "io.k8s.apimachinery.") {
		if kinds, ok := at(definition, "x-kubernetes-group-version-kind").([]any); ok {
			for _, kind := range kinds {
				f[name+" "+kindOf(kind)] = true
			}
		}
		f[name+" "+typeOf(definition)] = true
	}
	required, _ := at(definition, "required").([]any)
	for field, property := range fields(at(definition, "properties")) {
		line := name + "." + field + " " + typeOf(property)
		if slices.Contains(required, any(field)) {
			line += " required"
		}
		f[line] = true
	}
}

// parameters returns the names of the parameters that are not in the body.
func parameters(document, list any) []string {
	var names []string
	all, _ := list.([]any)
	for _, p := range all {
		if ref, ok := at(p, "$ref").(string); ok { // a shared parameter in v2
			p = at(document, "parameters", path.Base(ref))
		}
		if name, ok := at(p, "name").(string); ok && at(p, "in") != "body" {
			names = append(names, name)
		}
	}
	return names
}

func kindOf(gvk any) string {
	if gvk == nil {
		return "-"
	}
	return fmt.Sprintf("%v/%v %v", at(gvk, "group"), at(gvk, "version"), at(gvk, "kind"))
}

// typeOf describes which values a field takes and how server-side apply merges them.
func typeOf(schema any) string {
	if all, ok := at(schema, "allOf").([]any); ok && len(all) == 1 {
		merged := maps.Clone(fields(all[0])) // v3 wraps a reference that has a default
		maps.Copy(merged, fields(schema))
		schema = merged
	}
	var words []string
	for _, key := range []string{
		"$ref", "type", "format", "enum", "items", "additionalProperties", "x-kubernetes-list-type",
		"x-kubernetes-list-map-keys", "x-kubernetes-map-type", "x-kubernetes-patch-merge-key",
		"x-kubernetes-patch-strategy", "x-kubernetes-unions",
	} {
		switch value := at(schema, key); {
		case value == nil:
		case key == "$ref":
			words = append(words, path.Base(value.(string)))
		case key == "items" || key == "additionalProperties":
			element := maps.Clone(fields(value))
			delete(element, "default") // omitted by 1.37
			words = append(words, "of "+typeOf(map[string]any(element)))
		default:
			words = append(words, fmt.Sprintf("%s=%v", strings.TrimPrefix(key, "x-kubernetes-"), value))
		}
	}
	return strings.Join(words, " ")
}

// at returns the value at the path, or nil if there is none.
func at(value any, path ...string) any {
	for _, key := range path {
		value = fields(value)[key]
	}
	return value
}

func fields(value any) map[string]any {
	m, _ := value.(map[string]any)
	return m
}
