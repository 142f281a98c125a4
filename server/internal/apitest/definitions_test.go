package apitest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/server/servertest"
)

// definitionOf returns a definition in the group definitions.example.com.
func definitionOf(plural string) *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + ".definitions.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "definitions.example.com",
			Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Kind: "K" + plural},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{
					OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
						Type: "object",
						Properties: map[string]apiextensionsv1.JSONSchemaProps{
							"spec": {Type: "object", Description: "about " + plural},
						},
					},
				},
			}},
		},
	}
}

// A client that learns that a definition is established can create an object at once. The
// conditions are those of kube-apiserver, written in one step.
func TestDefinitionIsServedOnceEstablished(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t)
	config := rest.CopyConfig(s.RESTConfig())
	config.QPS = -1
	definitions := apiextensionsclient.NewForConfigOrDie(config).ApiextensionsV1().
		CustomResourceDefinitions()
	objects := dynamic.NewForConfigOrDie(config)
	changes, err := definitions.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer changes.Stop()
	for i := range 30 {
		plural := fmt.Sprintf("widgets%d", i)
		if _, err := definitions.Create(t.Context(), definitionOf(plural),
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		var established *apiextensionsv1.CustomResourceDefinition
		events := 0
		for established == nil {
			event := <-changes.ResultChan()
			definition, ok := event.Object.(*apiextensionsv1.CustomResourceDefinition)
			if !ok || event.Type == watch.Error {
				t.Fatalf("the watch of definitions ended: %v", event)
			}
			if definition.Spec.Names.Plural != plural {
				continue
			}
			events++
			for _, c := range definition.Status.Conditions {
				if c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue {
					established = definition
				}
			}
		}
		object := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "definitions.example.com/v1", "kind": "K" + plural,
			"metadata": map[string]any{"name": "a"},
		}}
		resource := schema.GroupVersionResource{
			Group: "definitions.example.com", Version: "v1", Resource: plural,
		}
		if _, err := objects.Resource(resource).Namespace(metav1.NamespaceDefault).Create(t.Context(),
			object, metav1.CreateOptions{}); err != nil {
			t.Fatalf("create an object of an established definition: %v", err)
		}
		if events != 2 {
			t.Errorf("%s was established after %d events, want 2", plural, events)
		}
		var conditions []string
		for _, c := range established.Status.Conditions {
			conditions = append(conditions, fmt.Sprintf("%s=%s %s %q", c.Type, c.Status, c.Reason,
				c.Message))
		}
		want := `NamesAccepted=True NoConflicts "no conflicts found", ` +
			`Established=True InitialNamesAccepted "the initial names have been accepted"`
		if got := strings.Join(conditions, ", "); got != want {
			t.Errorf("conditions are\n%s, want\n%s", got, want)
		}
	}
}

// Clients that look after the write of a definition find that its kind is established, and
// described with its names and versions, or that its names are refused.
func TestDefinitionIsDescribedOnceWritten(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t)
	config := rest.CopyConfig(s.RESTConfig())
	config.QPS = -1
	client := apiextensionsclient.NewForConfigOrDie(config)
	definitions := client.ApiextensionsV1().CustomResourceDefinitions()
	aggregated := func() map[schema.GroupVersion]*metav1.APIResourceList {
		t.Helper()
		_, all, _, err := client.Discovery().(discovery.AggregatedDiscoveryInterface).
			GroupsAndMaybeResources()
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	described := func(name, version string) {
		t.Helper()
		d, err := definitions.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if !apihelpers.IsCRDConditionTrue(d, apiextensionsv1.Established) {
			t.Errorf("%s is not established: %v", name, d.Status.Conditions)
		}
		gv := schema.GroupVersion{Group: d.Spec.Group, Version: version}
		is := func(r metav1.APIResource) bool { return r.Name == d.Spec.Names.Plural }
		list, err := client.Discovery().ServerResourcesForGroupVersion(gv.String())
		if err != nil || !slices.ContainsFunc(list.APIResources, is) {
			t.Errorf("/apis/%s lacks %s: %v (%v)", gv, name, list, err)
		}
		all := aggregated()[gv]
		if all == nil || !slices.ContainsFunc(all.APIResources, is) {
			t.Errorf("/apis lacks %s in %s: %v", name, gv, all)
		}
	}
	for i := range 30 {
		d := definitionOf(fmt.Sprintf("created%d", i))
		d, err := definitions.Create(t.Context(), d, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		described(d.Name, "v1")
		added := fmt.Sprintf("v1beta%d", i+1)
		patch := fmt.Sprintf(`[
			{"op": "copy", "from": "/spec/versions/0", "path": "/spec/versions/1"},
			{"op": "replace", "path": "/spec/versions/1/name", "value": %q},
			{"op": "replace", "path": "/spec/versions/1/storage", "value": false}]`, added)
		if _, err := definitions.Patch(t.Context(), d.Name, types.JSONPatchType, []byte(patch),
			metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		described(d.Name, added)
		short := fmt.Sprintf("c%d", i)
		patch = fmt.Sprintf(`[
			{"op": "add", "path": "/spec/names/shortNames", "value": [%q]},
			{"op": "remove", "path": "/spec/versions/1"}]`, short)
		if _, err := definitions.Patch(t.Context(), d.Name, types.JSONPatchType, []byte(patch),
			metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		all := aggregated()
		if gv := (schema.GroupVersion{Group: d.Spec.Group, Version: added}); all[gv] != nil {
			t.Errorf("/apis still has %s", gv)
		}
		v1 := all[schema.GroupVersion{Group: d.Spec.Group, Version: "v1"}]
		if v1 == nil || !slices.ContainsFunc(v1.APIResources, func(r metav1.APIResource) bool {
			return slices.Contains(r.ShortNames, short)
		}) {
			t.Errorf("/apis lacks the short name %s: %v", short, v1)
		}

		refused := definitionOf(fmt.Sprintf("refused%d", i))
		refused.Spec.Names.ShortNames = []string{short}
		if _, err := definitions.Create(t.Context(), refused, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		refused, err = definitions.Get(t.Context(), refused.Name, metav1.GetOptions{})
		if err != nil || !apihelpers.IsCRDConditionFalse(refused, apiextensionsv1.NamesAccepted) {
			t.Errorf("the names of %s are not refused: %v (%v)", refused.Name, refused.Status, err)
		}
		patch = fmt.Sprintf(`[{"op": "replace", "path": "/spec/names/shortNames/0", "value": "r%d"}]`, i)
		if _, err := definitions.Patch(t.Context(), refused.Name, types.JSONPatchType, []byte(patch),
			metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		described(refused.Name, "v1")

		d = definitionOf(fmt.Sprintf("applied%d", i))
		d.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
		body, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := definitions.Patch(t.Context(), d.Name, types.ApplyPatchType, body,
			metav1.PatchOptions{FieldManager: "test"}); err != nil {
			t.Fatal(err)
		}
		described(d.Name, "v1")
	}
}

// A document of custom resources has the latest definitions of its group version, and clients can
// keep it as long as its hash stays the same.
func TestDefinitionsInOpenAPI(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t)
	config := s.RESTConfig()
	definitions := apiextensionsclient.NewForConfigOrDie(config).ApiextensionsV1().
		CustomResourceDefinitions()
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	get := func(url string, headers ...string) (*http.Response, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+url, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		response, err := transport.RoundTrip(r) // does not follow redirections
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		var body bytes.Buffer
		if _, err := body.ReadFrom(response.Body); err != nil {
			t.Fatal(err)
		}
		return response, body.String()
	}
	const path = "apis/definitions.example.com/v1"
	// listed returns the URL of the document.
	listed := func() string {
		t.Helper()
		var list struct {
			Paths map[string]struct{ ServerRelativeURL string }
		}
		_, body := get("/openapi/v3")
		if err := json.Unmarshal([]byte(body), &list); err != nil {
			t.Fatal(err)
		}
		return list.Paths[path].ServerRelativeURL
	}
	create := func(plural string) {
		t.Helper()
		if _, err := definitions.Create(t.Context(), definitionOf(plural),
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	create("ones")
	first := listed()
	response, body := get(first)
	if response.StatusCode != http.StatusOK || !strings.Contains(body, "about ones") {
		t.Errorf("GET %s: %s\n%s", first, response.Status, body)
	}
	etag := response.Header.Get("Etag")
	if !strings.HasSuffix(first, "?hash="+strings.Trim(etag, `"`)) {
		t.Errorf("the URL is %s, but the tag %s", first, etag)
	}
	if !strings.Contains(response.Header.Get("Cache-Control"), "immutable") {
		t.Errorf("GET %s is not immutable", first)
	}
	if response, _ := get("/openapi/v3/"+path, "If-None-Match", etag); response.StatusCode !=
		http.StatusNotModified {
		t.Errorf("a document that did not change: %s", response.Status)
	}
	response, body = get("/openapi/v3/"+path, "Accept",
		"application/com.github.proto-openapi.spec.v3@v1.0+protobuf")
	if response.StatusCode != http.StatusOK || !strings.HasSuffix(response.Header.Get("Content-Type"),
		"+protobuf") && !strings.Contains(response.Header.Get("Content-Type"), "proto-openapi") ||
		json.Valid([]byte(body)) {
		t.Errorf("a document as protobuf: %s, %s", response.Status,
			response.Header.Get("Content-Type"))
	}

	// Another kind of the group changes the document.
	create("twos")
	second := listed()
	if response, _ := get(first); response.StatusCode != http.StatusMovedPermanently ||
		response.Header.Get("Location") != second {
		t.Errorf("GET %s, which is outdated: %s to %s", first, response.Status,
			response.Header.Get("Location"))
	}
	if _, body := get(second); !strings.Contains(body, "about ones") ||
		!strings.Contains(body, "about twos") {
		t.Errorf("GET %s does not describe both kinds", second)
	}
	for _, plural := range []string{"ones", "twos"} {
		if err := definitions.Delete(t.Context(), plural+".definitions.example.com",
			metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, time.Minute, true,
		func(context.Context) (bool, error) { return listed() == "", nil }); err != nil {
		t.Errorf("wait until the deleted definitions have no document: %v", err)
	}
}
