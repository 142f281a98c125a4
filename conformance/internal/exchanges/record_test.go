package exchanges

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"testing"
)

// TestRecord records anew what another server has answered, and reads it back.
func TestRecord(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/same":
			w.Header().Add("Warning", `299 - "one, two"`)
			_, _ = io.WriteString(w, `{"metadata": {"uid": "1", "resourceVersion": "7"}, "at": "2026-01-02T03:04:05Z"}`)
		case "/text":
			w.WriteHeader(http.StatusConflict)
			_, _ = io.WriteString(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 409, "message": "new"}`)
		default:
			_, _ = io.WriteString(w, `{"path": "`+r.URL.Path+`"}`)
		}
	}))
	t.Cleanup(server.Close)
	ok := responseHeaders{ContentType: "application/json"}
	step := func(path string, r Response) Step {
		return Step{Request: Request{Method: http.MethodGet, Path: path}, Response: r}
	}
	warned := ok
	warned.Warnings = []string{`299 - "two, one"`}
	same := Response{Status: 200, Headers: warned, Body: map[string]any{
		"metadata": map[string]any{"uid": "<uid>", "resourceVersion": "<rv:new>"}, "at": "<time>",
	}}
	failure := func(message string) Response {
		return Response{Status: 409, Headers: ok, Body: map[string]any{
			"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": json.Number("409"),
			"message": message,
		}}
	}
	r := &Recording{Name: "of", Server: "a server", Cases: []Case{{
		Name: "case", Category: "protocol", Steps: []Step{
			step("/same", same), step("/text", failure("old")),
			step("/other", Response{Status: 404, Headers: ok}),
		},
	}}}
	differences, err := r.Record(t.Context(), Target{URL: server.URL, Client: server.Client()})
	if err != nil || len(differences) != 2 {
		t.Fatalf("recorded the differences %v, %v", differences, err)
	}
	want := []Response{same, failure("new"), {
		Status: 200, Headers: ok, Body: map[string]any{"path": "/other"},
	}}
	dir := t.TempDir()
	if err := r.Save(dir); err != nil {
		t.Fatal(err)
	}
	read, err := Load(os.DirFS(dir))
	if err != nil || len(read) != 1 || !reflect.DeepEqual(read[0], r) {
		t.Fatalf("read back %v, %v", read, err)
	}
	for i, got := range read[0].Cases[0].Steps {
		if !reflect.DeepEqual(got.Response, want[i]) {
			t.Errorf("step %d: %v, want %v", i, got.Response, want[i])
		}
	}
	if differences, _, err := read[0].Replay(t.Context(),
		Target{URL: server.URL, Client: server.Client()}); err != nil || len(differences) > 0 {
		t.Errorf("replayed: %v, %v", differences, err)
	}
}
