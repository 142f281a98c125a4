package apitest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest"
)

const asYAML = "application/yaml"

// bodyDefinition is a format for a definition. Its arguments are the plural name and further
// fields of its only version.
const bodyDefinition = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
	"metadata":{"name":"%s.bodies.example"},
	"spec":{"group":"bodies.example","scope":"Namespaced","names":{"plural":"%[1]s","kind":"K%[1]s"},
	"versions":[{"name":"v1","served":true,"storage":true,%s}]}}`

// bodyBomb returns an object of half a megabyte of YAML that takes gigabytes once its aliases are
// expanded.
func bodyBomb(header string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\ndata:\n  text: &text %s\n", header, strings.Repeat("x", 100<<10))
	for i := range 30000 {
		fmt.Fprintf(&b, "  k%d: *text\n", i)
	}
	return b.String()
}

// bodyDeep returns an object that nests values deeper than any decoder supports, using aliases
// of nested values.
func bodyDeep(header string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\ndata:\n  a0: &a0 x\n", header)
	for i := range 12 {
		fmt.Fprintf(&b, "  a%d: &a%[1]d %s*a%d%s\n", i+1, strings.Repeat("[", 1000), i,
			strings.Repeat("]", 1000))
	}
	return b.String()
}

func TestBodies(t *testing.T) {
	t.Parallel()
	const (
		configMaps  = "/api/v1/namespaces/default/configmaps"
		definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
		widgets     = "/apis/bodies.example/v1/namespaces/default/widgets"

		asApply = "application/apply-patch+yaml"
		asMerge = "application/strategic-merge-patch+json"
		asJSON  = "application/json"

		asJSONPatch = "application/json-patch+json"
	)
	s := servertest.Run(t, servertest.WithoutControllers)
	client, err := rest.HTTPClientFor(s.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	do := func(method, path, contentType, body string) (metav1.Status, http.Header) {
		t.Helper()
		return sendBody(t, client, method, s.URL()+path, contentType, body)
	}
	for path, object := range map[string]string{
		"/api/v1/nodes": `{"metadata":{"name":"n"},
			"status":{"addresses":[{"type":"Hostname","address":"x"}]}}`,
		configMaps: `{"metadata":{"name":"m","finalizers":["a.example/b"],
			"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"n","uid":"u"}]}}`,
		"/api/v1/namespaces": `{"metadata":{"name":"patched"}}`,
		definitions: fmt.Sprintf(bodyDefinition, "widgets",
			`"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}`),
		"/apis/apps/v1/namespaces/default/deployments": `{"metadata":{"name":"d"},
			"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{
			"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`,
	} {
		if status, _ := do(http.MethodPost, path, asJSON, object); status.Status == metav1.StatusFailure {
			t.Fatalf("%s: %s", path, status.Message)
		}
	}
	eventually(t, "the CRD is served", func() error {
		if status, _ := do(http.MethodGet, widgets, asJSON, ""); status.Status == metav1.StatusFailure {
			return errors.New(status.Message)
		}
		return nil
	})
	configMap, widget := "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a",
		"apiVersion: bodies.example/v1\nkind: Kwidgets\nmetadata:\n  name: a"
	const tooLarge, wrong, invalid = http.StatusRequestEntityTooLarge, http.StatusBadRequest,
		http.StatusUnprocessableEntity
	for _, test := range []struct {
		name, method, path, contentType, body string
		code                                  int
		field                                 string // field of a cause, if any
	}{
		{"YAML", http.MethodPost, configMaps, asYAML, bodyBomb(configMap), tooLarge, ""},
		{
			"YAML with parameters", http.MethodPost, configMaps, "Application/YAML; charset=utf-8",
			bodyBomb(configMap), tooLarge, "",
		},
		{
			"YAML of an update", http.MethodPut, configMaps + "/m", asYAML, bodyBomb(configMap), tooLarge,
			"",
		},
		{
			"YAML of a deletion", http.MethodDelete, configMaps + "/m", asYAML,
			bodyBomb("kind: DeleteOptions"), tooLarge, "",
		},
		{
			"the YAML of an apply that deletes", http.MethodDelete, configMaps + "/m", asApply,
			"a: &a [*a]", http.StatusUnsupportedMediaType, "",
		},
		{
			"YAML of many deletions", http.MethodDelete, configMaps, asYAML,
			bodyBomb("kind: DeleteOptions"), tooLarge, "",
		},
		{
			"YAML of a review", http.MethodPost, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
			asYAML, bodyBomb("kind: SelfSubjectAccessReview"), tooLarge, "",
		},
		{
			"YAML of a token", http.MethodPost, "/api/v1/namespaces/default/serviceaccounts/default/token",
			asYAML, bodyBomb("kind: TokenRequest"), tooLarge, "",
		},
		{
			"YAML of an eviction", http.MethodPost, "/api/v1/namespaces/default/pods/p/eviction", asYAML,
			bodyBomb("kind: Eviction"), tooLarge, "",
		},
		{
			"YAML of a definition", http.MethodPost, definitions, asYAML,
			bodyBomb("kind: CustomResourceDefinition"), tooLarge, "",
		},
		{
			"YAML of an APIService", http.MethodPost, "/apis/apiregistration.k8s.io/v1/apiservices", asYAML,
			bodyBomb("kind: APIService"), tooLarge, "",
		},
		{"YAML of a custom resource", http.MethodPost, widgets, asYAML, bodyBomb(widget), tooLarge, ""},
		{
			"apply", http.MethodPatch, configMaps + "/a?fieldManager=f", asApply, bodyBomb(configMap),
			tooLarge, "",
		},
		{
			"apply a custom resource", http.MethodPatch, widgets + "/a?fieldManager=f", asApply,
			bodyBomb(widget), tooLarge, "",
		},
		{
			"apply a definition", http.MethodPatch, definitions + "/a?fieldManager=f", asApply,
			bodyBomb("kind: CustomResourceDefinition"), tooLarge, "",
		},
		{"deep YAML", http.MethodPost, configMaps, asYAML, bodyDeep(configMap), wrong, ""},
		{
			"deep apply", http.MethodPatch, widgets + "/a?fieldManager=f", asApply, bodyDeep(widget),
			wrong, "",
		},
		{
			"too much YAML", http.MethodPost, configMaps, asYAML, "a: &a " + strings.Repeat("*", 4<<20),
			tooLarge, "",
		},
		{
			"YAML to nowhere", http.MethodPost, "/apis/nowhere.example/v1/things", asYAML, bodyBomb(widget),
			http.StatusNotFound, "",
		},

		{
			"type of an address", http.MethodPatch, "/api/v1/nodes/n/status", asMerge,
			`{"status":{"addresses":[{"type":{},"address":"x"}]}}`, invalid, "patch",
		},
		{
			"name of a container", http.MethodPatch, "/apis/apps/v1/namespaces/default/deployments/d",
			asMerge, `{"spec":{"template":{"spec":{"containers":[{"name":["c"]}]}}}}`, invalid,
			"patch",
		},
		{
			"no container", http.MethodPatch, "/apis/apps/v1/namespaces/default/deployments/d", asMerge,
			`{"spec":{"template":{"spec":{"containers":[null]}}}}`,
			http.StatusInternalServerError, "",
		},
		{
			"uid of an owner", http.MethodPatch, configMaps + "/m", asMerge,
			`{"metadata":{"ownerReferences":[{"uid":{}}]}}`, invalid, "patch",
		},
		{
			"finalizer", http.MethodPatch, configMaps + "/m", asMerge, `{"metadata":{"finalizers":[null]}}`,
			http.StatusInternalServerError, "",
		},
		{
			"retained keys", http.MethodPatch, "/apis/apps/v1/namespaces/default/deployments/d", asMerge,
			`{"spec":{"strategy":{"$retainKeys":[{}]}}}`, invalid, "patch",
		},
		{
			"status of a namespace", http.MethodPatch, "/api/v1/namespaces/patched/status", asMerge,
			`{"status":{"conditions":[{"type":{}}]}}`, invalid, "patch",
		},
		{
			"owner of a definition", http.MethodPatch, definitions + "/widgets.bodies.example", asMerge,
			`{"metadata":{"ownerReferences":[{"uid":{}}]}}`, invalid, "patch",
		},
		{
			"condition of an APIService", http.MethodPatch,
			"/apis/apiregistration.k8s.io/v1/apiservices/v1.apps/status", asMerge,
			`{"status":{"conditions":[{"type":{}}]}}`, invalid, "patch",
		},
		{
			"owner of nothing", http.MethodPatch, configMaps + "/missing", asMerge,
			`{"metadata":{"ownerReferences":[{"uid":{}}]}}`, http.StatusNotFound, "",
		},
		{
			"merge by force", http.MethodPatch, configMaps + "/m?force=true", asMerge,
			`{"metadata":{"ownerReferences":[{"uid":{}}]}}`, invalid, "force",
		},
		{
			"apply without a manager", http.MethodPatch, configMaps + "/m", asApply, "a: &a [*a]",
			invalid, "fieldManager",
		},
		{
			"nothing in place of an object", http.MethodPatch, configMaps + "/m", asJSONPatch,
			`[{"op":"replace","path":""}]`, invalid, "patch",
		},
		{
			"null compared", http.MethodPatch, configMaps + "/m", asJSONPatch,
			`[{"op":"add","path":"/x","value":[null]},{"op":"test","path":"/x","value":[null]}]`, invalid,
			"patch",
		},

		{
			"no schema", http.MethodPost, definitions, asJSON,
			fmt.Sprintf(bodyDefinition, "as", `"schema":{},"selectableFields":[{"jsonPath":".a"}]`),
			invalid, "spec.versions[0].schema.openAPIV3Schema",
		},
		{
			"a schema that is none", http.MethodPost, definitions, asJSON,
			fmt.Sprintf(bodyDefinition, "bs",
				`"schema":{"openAPIV3Schema":{"type":"object","definitions":{"a":{}}}},
					"selectableFields":[{"jsonPath":".a"}]`),
			invalid, "spec.versions[0].schema.openAPIV3Schema",
		},
		{"no schema in one of two versions", http.MethodPost, definitions, asJSON,
			fmt.Sprintf(bodyDefinition, "cs",
				`"schema":{"openAPIV3Schema":{"type":"object","definitions":{"a":{}}}},
					"selectableFields":[{"jsonPath":".a"}]},
					{"name":"v2","served":true,"schema":{"openAPIV3Schema":{"type":"object"}}`),
			invalid, "spec.versions[0].schema.openAPIV3Schema"},
		{"no schema any more", http.MethodPatch, definitions + "/widgets.bodies.example", asJSONPatch,
			`[{"op":"replace","path":"/spec/versions/0/schema","value":{}},
				{"op":"add","path":"/spec/versions/0/selectableFields","value":[{"jsonPath":".a"}]}]`,
			invalid, "spec.versions[0].schema.openAPIV3Schema"},
	} {
		status, header := do(test.method, test.path, test.contentType, test.body)
		if int(status.Code) != test.code || status.Message == "" ||
			strings.Contains(status.Message, "goroutine") {
			t.Errorf("%s: %d %s: %s", test.name, status.Code, status.Reason, status.Message)
		}
		if test.field != "" && (status.Details == nil || !slices.ContainsFunc(status.Details.Causes,
			func(c metav1.StatusCause) bool { return c.Field == test.field })) {
			t.Errorf("%s: no cause for %s in %+v", test.name, test.field, status.Details)
		}
		if header.Get("Connection") == "close" {
			t.Errorf("%s closed the connection", test.name)
		}
	}

	// Ordinary bodies are decoded as usual.
	for _, test := range []struct{ method, path, contentType, body string }{
		{
			http.MethodPost, configMaps, asYAML,
			configMap + "\ndata:\n  a: &a some text\n  b: *a\n  c: \"*a\"\n",
		},
		{
			http.MethodPatch, configMaps + "/b?fieldManager=f", asApply,
			strings.ReplaceAll(configMap, "name: a", "name: b") + "\ndata: &data {a: b}\n",
		},
		{
			http.MethodPatch, widgets + "/a?fieldManager=f", asApply,
			widget + "\nspec: &spec {x: [1, 2]}\nstatus: {<<: *spec}\n",
		},
		{
			http.MethodPatch, "/api/v1/nodes/n/status", asMerge,
			`{"status":{"addresses":[{"type":"Hostname","address":"y"}]}}`,
		},
		{
			http.MethodDelete, configMaps + "/a", asYAML,
			"kind: DeleteOptions\napiVersion: v1\ndryRun: &all [All]\n",
		},
	} {
		if status, _ := do(test.method, test.path, test.contentType, test.body); status.Status ==
			metav1.StatusFailure {
			t.Errorf("%s %s: %s", test.method, test.path, status.Message)
		}
	}
	typed, err := kubernetes.NewForConfig(s.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	stored, err := typed.CoreV1().ConfigMaps("default").Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil || stored.Data["b"] != "some text" || stored.Data["c"] != "*a" {
		t.Errorf("with aliases: %+v, %v", stored, err)
	}
}

// sendBody sends a request and returns the Status in the response if the request failed. Otherwise
// it returns a Status of Success with the response body as its message.
func sendBody(
	t *testing.T, client *http.Client, method, url, contentType, body string,
) (metav1.Status, http.Header) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", contentType)
	r.Header.Set("Accept", "application/json")
	response, err := client.Do(r)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	status := metav1.Status{Status: metav1.StatusSuccess, Message: string(answer)}
	if response.StatusCode >= http.StatusBadRequest {
		status.Status, status.Code = metav1.StatusFailure, int32(response.StatusCode)
		_ = json.Unmarshal(answer, &status) // if it is not a Status, the message stays the body
	}
	return status, response.Header
}

// TestBodiesForOthers checks that the proxy to a service passes on a body that the server itself
// would reject.
func TestBodiesForOthers(t *testing.T) {
	t.Parallel()
	body := bodyBomb("kind: Any")
	port := listenLocally(t, func(w http.ResponseWriter, r *http.Request) {
		got, err := io.ReadAll(r.Body)
		fmt.Fprint(w, string(got) == body, err)
	})
	s := servertest.Run(t, servertest.WithoutControllers, func(o *server.Options) {
		o.ProxyAllowLocalAddresses = true
	})
	typed, err := kubernetes.NewForConfig(s.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(s.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	createServiceAt(t, typed, "other", discoveryv1.AddressTypeIPv4, "127.0.0.1", port)
	status, _ := sendBody(t, client, http.MethodPost,
		s.URL()+"/api/v1/namespaces/default/services/other:80/proxy/", asYAML, body)
	if status.Message != "true <nil>" {
		t.Errorf("%d: %s", status.Code, status.Message)
	}
}
