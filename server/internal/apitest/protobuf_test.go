package apitest

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/server/servertest"
)

// TestProtobufOfCustomResources sends protobuf, which apiextensions-apiserver wrongly accepts as a
// media type for custom resources and then panics on.
func TestProtobufOfCustomResources(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, servertest.WithoutControllers)
	client, err := rest.HTTPClientFor(s.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	send := func(method, path, contentType, body string) int {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, s.URL()+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", contentType)
		response, err := client.Do(r)
		if err != nil {
			t.Fatalf("%s %s: %v", method, path, err)
		}
		response.Body.Close()
		return response.StatusCode
	}
	const (
		protobuf = "application/vnd.kubernetes.protobuf"
		objects  = "/apis/protobuf.example/v1/namespaces/default/things"
	)
	for _, made := range [][2]string{
		{
			"/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
			`{"metadata":{"name":"things.protobuf.example"},"spec":{"group":"protobuf.example",
			"scope":"Namespaced","names":{"plural":"things","kind":"Thing"},
			"versions":[{"name":"v1","served":true,"storage":true,
			"schema":{"openAPIV3Schema":{"type":"object"}},"subresources":{"status":{}}}]}}`,
		},
		{objects, `{"apiVersion":"protobuf.example/v1","kind":"Thing","metadata":{"name":"a"}}`},
	} {
		code := 0
		err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, 30*time.Second, true,
			func(context.Context) (bool, error) {
				code = send(http.MethodPost, made[0], "application/json", made[1])
				return code == http.StatusCreated, nil // it takes a moment until a definition is served
			})
		if err != nil {
			t.Fatalf("%s: %d", made[0], code)
		}
	}
	for _, test := range []struct {
		method, path, body string
		code               int
	}{
		{http.MethodPost, objects, "k8s\x00", http.StatusUnsupportedMediaType},
		{http.MethodPost, objects, `{"metadata":{"name":"b"}}`, http.StatusUnsupportedMediaType},
		{http.MethodPut, objects + "/a", `{"metadata":{"name":"a"}}`, http.StatusUnsupportedMediaType},
		{
			http.MethodPut, objects + "/a/status?fieldValidation=Strict", "",
			http.StatusUnsupportedMediaType,
		},
		{http.MethodPost, "/apis/nowhere.example/v1/things", "k8s\x00", http.StatusNotFound},
		{http.MethodPost, "/api/v1/namespaces", "k8s\x00", http.StatusBadRequest},
		{http.MethodDelete, objects + "/a", "", http.StatusOK},
	} {
		if code := send(test.method, test.path, protobuf, test.body); code != test.code {
			t.Errorf("%s %s %q: got %d, want %d", test.method, test.path, test.body, code, test.code)
		}
	}
}
