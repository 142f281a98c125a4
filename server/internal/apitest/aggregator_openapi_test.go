package apitest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kinproc/kinproc/server/servertest"
)

// TestAggregatorOpenAPI finds the documents of extension API servers when their APIServices become
// available, and not after they have been deleted. They cannot replace documents of built-in kinds.
func TestAggregatorOpenAPI(t *testing.T) {
	t.Parallel()
	second, third := startExtension(t, "127.0.0.1", "second"), startExtension(t, "127.0.0.1", "third")
	second.handle("GET /openapi/v2", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"swagger": "2.0", "info": {"title": "second", "version": "v1"}, "paths": {},
"definitions": {"Echo": {"type": "object", "description": "what comes back"}}}`)
	})
	third.handle("GET /openapi/v3", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"paths": {"apis/third.example.com/v1": {
"serverRelativeURL": "/openapi/v3/apis/third.example.com/v1?hash=A"},
"apis/apps/v1": {"serverRelativeURL": "/openapi/v3/apis/apps/v1?hash=of-another"}}}`)
	})
	third.handle("GET /openapi/v3/apis/third.example.com/v1",
		func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "hash %s for %s", r.URL.Query().Get("hash"), r.Header.Get("X-Remote-User"))
		})
	c := extend(t, servertest.Run(t))
	for service, e := range map[string]*extension{"second": second, "third": third} {
		c.service(service,
			corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"})
		c.await(c.register(service, e.port, trusting(e)), "Passed")
	}

	for path, wants := range map[string][]string{
		"/openapi/v3": {
			"/openapi/v3/apis/third.example.com/v1?hash=A", "/openapi/v3/apis/second.example.com/v1?hash=",
			"/openapi/v3/apis/apps/v1?hash=", "/openapi/v3/apis/apiextensions.k8s.io/v1?hash=",
		},
		"/openapi/v3/apis/second.example.com/v1":       {`"openapi":"3.0`, "what comes back"},
		"/openapi/v3/apis/third.example.com/v1?hash=A": {"hash A for kubernetes-super-admin"},
		"/openapi/v3/apis/apps/v1":                     {"io.k8s.api.apps.v1.Deployment"},
	} {
		response, body := c.get(path)
		for _, want := range wants {
			if response.StatusCode != http.StatusOK || !strings.Contains(body, want) {
				t.Errorf("%s: %s without %q\n%s", path, response.Status, want, body)
			}
		}
	}
	if _, index := c.get("/openapi/v3"); strings.Contains(index, "of-another") {
		t.Errorf("an extension API server describes built-in kinds: %s", index)
	}
	if response, _ := c.get("/openapi/v3/apis/nobody.example.com/v1"); response.StatusCode !=
		http.StatusNotFound {
		t.Errorf("a document that no server has: %s", response.Status)
	}

	err := c.aggregator.ApiregistrationV1().APIServices().Delete(t.Context(), "v1.third.example.com",
		metav1.DeleteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	await(t, "documents without those of a deleted APIService", func() bool {
		_, index := c.get("/openapi/v3")
		return !strings.Contains(index, "third.example.com")
	})
}
