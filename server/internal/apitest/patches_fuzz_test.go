package apitest

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/server/servertest"
)

// FuzzPatch sends patches of every type to objects of several kinds and checks that no request
// makes the server panic. A panic shows as an internal error that mentions it, or as a broken
// stream.
func FuzzPatch(f *testing.F) {
	s := servertest.Run(f, servertest.WithoutControllers)
	client, err := rest.HTTPClientFor(s.RESTConfig())
	if err != nil {
		f.Fatal(err)
	}
	do := func(method, path, contentType, body string) (string, error) {
		r, err := http.NewRequest(method, s.URL()+path, strings.NewReader(body))
		if err != nil {
			return "", err
		}
		r.Header.Set("Content-Type", contentType)
		response, err := client.Do(r)
		if err != nil {
			return "", err
		}
		defer response.Body.Close()
		answer, err := io.ReadAll(response.Body)
		return string(answer), err
	}
	const meta = `"metadata":{"name":"a","finalizers":["a.example/b"],"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"n","uid":"u"}]}`
	var objects []string
	for _, o := range []struct{ path, name, spec string }{
		{"/api/v1/nodes", "a", `,"status":{"addresses":[{"type":"Hostname","address":"x"}],"conditions":[{"type":"Ready","status":"True"}]}`},
		{
			"/api/v1/namespaces/default/services", "a",
			`,"spec":{"ports":[{"port":80}],"selector":{"a":"b"}}`,
		},
		{"/api/v1/namespaces/default/configmaps", "a", `,"data":{"a":"b"}`},
		{"/apis/apps/v1/namespaces/default/deployments", "a", `,"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i","env":[{"name":"E","value":"v"}],"ports":[{"containerPort":1}]}],"volumes":[{"name":"v","emptyDir":{}}]}}}`},
		{
			"/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "as.fuzz.example",
			`,"spec":{"group":"fuzz.example","scope":"Namespaced","names":{"plural":"as","kind":"A"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"l":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"],"items":{"type":"object","required":["k"],"properties":{"k":{"type":"string"}}}},"s":{"type":"string"}}}}}]}`,
		},
		{
			"/apis/fuzz.example/v1/namespaces/default/as", "a",
			`,"apiVersion":"fuzz.example/v1","kind":"A","l":[{"k":"a"}],"s":"x"`,
		},
	} {
		body := "{" + strings.Replace(meta, `"a"`, `"`+o.name+`"`, 1) + o.spec + "}"
		if answer, err := do(http.MethodPost, o.path, "application/json", body); err != nil ||
			strings.Contains(answer, `"Failure"`) {
			f.Fatal(o.path, answer, err)
		}
		objects = append(objects, o.path+"/"+o.name)
	}
	types := []string{
		"application/strategic-merge-patch+json", "application/merge-patch+json",
		"application/json-patch+json", "application/apply-patch+yaml",
	}
	for _, patch := range []string{
		`{"status":{"addresses":[{"type":{},"address":"x"}]}}`,
		`{"metadata":{"finalizers":[null],"ownerReferences":[{"uid":{}}]}}`,
		`{"spec":{"template":{"spec":{"$setElementOrder/containers":[{"name":"c"}],"containers":[{"name":"c","env":[{"name":"E","$patch":"delete"}]}]}}}}`,
		`{"spec":{"versions":[{"name":"v1","served":true,"storage":true,"schema":{},"selectableFields":[{"jsonPath":".s"}]}]}}`,
		`[{"op":"copy","from":"/metadata","path":"/spec"},{"op":"remove","path":"/metadata/finalizers/0"}]`,
		`[{"op":"replace","path":""}]`,
		"{apiVersion: fuzz.example/v1, kind: A, metadata: {name: &a a}, l: [{k: *a}, {k: b}]}",
		`null`, `[]`, `{"metadata":null}`, `{"l":[{"k":null}],"spec":[],"status":"x","data":{"a":{}}}`,
	} {
		for i := range len(objects) * len(types) {
			f.Add(uint8(i), patch)
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, patch string) {
		if len(patch) > 1<<12 {
			return
		}
		object, as := objects[int(which)%len(objects)], types[int(which)/len(objects)%len(types)]
		for _, subresource := range []string{"", "/status"} {
			path := fmt.Sprintf("%s%s?dryRun=All&fieldManager=f", object, subresource)
			if answer, err := do(http.MethodPatch, path, as, patch); err != nil ||
				strings.Contains(answer, "server panic") {
				t.Errorf("PATCH %s with %s %q: %s, %v", path, as, patch, answer, err)
			}
		}
	})
}
