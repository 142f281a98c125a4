package main

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The server has one resource in one version: greetings.plain.example.com/v1.
const (
	group        = "plain.example.com"
	version      = "v1"
	groupVersion = group + "/" + version
	kind         = "Greeting"
	resource     = "greetings"
)

type object = map[string]any

// api keeps greetings in memory.
type api struct {
	mu      sync.Mutex
	objects map[string]greeting // by namespace/name
	version int                 // number of writes, the current resource version
}

type greeting struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Metadata   metadata       `json:"metadata"`
	Spec       map[string]any `json:"spec,omitempty"`
}

type metadata struct {
	Name              string            `json:"name"`
	Namespace         string            `json:"namespace"`
	UID               string            `json:"uid"`
	ResourceVersion   string            `json:"resourceVersion"`
	CreationTimestamp string            `json:"creationTimestamp"`
	Labels            map[string]string `json:"labels,omitempty"`
	Annotations       map[string]string `json:"annotations,omitempty"`
}

func newAPI() http.Handler {
	a := &api{objects: map[string]greeting{}}
	mux := http.NewServeMux()
	// Discovery tells clients which groups, versions and resources the server has.
	versions := []object{{"groupVersion": groupVersion, "version": version}}
	apiGroup := object{
		"kind":             "APIGroup",
		"apiVersion":       "v1",
		"name":             group,
		"versions":         versions,
		"preferredVersion": versions[0],
	}
	mux.HandleFunc("GET /apis",
		serve(object{"kind": "APIGroupList", "apiVersion": "v1", "groups": []object{apiGroup}}))
	mux.HandleFunc("GET /apis/"+group, serve(apiGroup))
	mux.HandleFunc("GET /apis/"+groupVersion, serve(object{
		"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": groupVersion,
		"resources": []object{{
			"name": resource, "singularName": strings.ToLower(kind), "kind": kind, "namespaced": true,
			"verbs": []string{"create", "delete", "get", "list", "update"},
		}},
	}))
	// Objects.
	all := "/apis/" + groupVersion + "/namespaces/{namespace}/" + resource
	mux.HandleFunc("GET /apis/"+groupVersion+"/"+resource, a.list)
	mux.HandleFunc("GET "+all, a.list)
	mux.HandleFunc("POST "+all, a.create)
	mux.HandleFunc("GET "+all+"/{name}", a.get)
	mux.HandleFunc("PUT "+all+"/{name}", a.update)
	mux.HandleFunc("DELETE "+all+"/{name}", a.delete)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeStatus(w, http.StatusNotFound, "NotFound", "the server could not find "+r.URL.Path)
	})
	return mux
}

func serve(body object) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { write(w, http.StatusOK, body) }
}

func (a *api) list(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	namespace := r.PathValue("namespace") // empty for all namespaces
	name, byName := strings.CutPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")
	items := []greeting{}
	for _, g := range a.objects {
		if (namespace == "" || g.Metadata.Namespace == namespace) &&
			(!byName || g.Metadata.Name == name) {
			items = append(items, g)
		}
	}
	slices.SortFunc(items, func(x, y greeting) int {
		return cmp.Or(cmp.Compare(x.Metadata.Namespace, y.Metadata.Namespace),
			cmp.Compare(x.Metadata.Name, y.Metadata.Name))
	})
	write(w, http.StatusOK, object{
		"kind":       kind + "List",
		"apiVersion": groupVersion,
		"metadata":   object{"resourceVersion": strconv.Itoa(a.version)},
		"items":      items,
	})
}

func (a *api) create(w http.ResponseWriter, r *http.Request) {
	g, ok := read(w, r)
	if !ok {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, exists := a.objects[g.key()]; exists {
		writeStatus(w, http.StatusConflict, "AlreadyExists",
			fmt.Sprintf("%s %q already exists", resource, g.Metadata.Name))
		return
	}
	g.Metadata.UID, g.Metadata.CreationTimestamp = rand.Text(), time.Now().UTC().Format(time.RFC3339)
	write(w, http.StatusCreated, a.store(g))
}

func (a *api) get(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if g, ok := a.find(w, r); ok {
		write(w, http.StatusOK, g)
	}
}

func (a *api) update(w http.ResponseWriter, r *http.Request) {
	g, ok := read(w, r)
	if !ok {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	old, ok := a.find(w, r)
	if !ok {
		return
	}
	if v := g.Metadata.ResourceVersion; g.key() != old.key() ||
		v != "" && v != old.Metadata.ResourceVersion {
		writeStatus(w, http.StatusConflict, "Conflict",
			fmt.Sprintf("%s %q has been modified", resource, old.Metadata.Name))
		return
	}
	g.Metadata.UID, g.Metadata.CreationTimestamp = old.Metadata.UID, old.Metadata.CreationTimestamp
	write(w, http.StatusOK, a.store(g))
}

func (a *api) delete(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if g, ok := a.find(w, r); ok {
		delete(a.objects, g.key())
		a.version++
		write(w, http.StatusOK, object{"kind": "Status", "apiVersion": "v1", "status": "Success"})
	}
}

func (g greeting) key() string { return g.Metadata.Namespace + "/" + g.Metadata.Name }

// store stores g with a new resource version. The caller holds the mutex.
func (a *api) store(g greeting) greeting {
	a.version++
	g.Metadata.ResourceVersion = strconv.Itoa(a.version)
	a.objects[g.key()] = g
	return g
}

// find returns the requested object, or writes a 404 response if it does not exist. The caller
// holds the mutex.
func (a *api) find(w http.ResponseWriter, r *http.Request) (greeting, bool) {
	g, ok := a.objects[r.PathValue("namespace")+"/"+r.PathValue("name")]
	if !ok {
		writeStatus(w, http.StatusNotFound, "NotFound",
			fmt.Sprintf("%s %q not found", resource, r.PathValue("name")))
	}
	return g, ok
}

// read returns the object in the request body, or writes an error response if it is invalid.
func read(w http.ResponseWriter, r *http.Request) (greeting, bool) {
	var g greeting
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&g)
	switch {
	case err != nil:
		writeStatus(w, http.StatusBadRequest, "BadRequest", err.Error())
	case g.APIVersion != groupVersion || g.Kind != kind || g.Metadata.Name == "":
		writeStatus(w, http.StatusUnprocessableEntity, "Invalid",
			"the body must be a "+kind+" of "+groupVersion+" with a name")
		err = http.ErrNotSupported
	}
	g.Metadata.Namespace = r.PathValue("namespace")
	return g, err == nil
}

// writeStatus writes an error as a Status object, as Kubernetes clients expect it.
func writeStatus(w http.ResponseWriter, code int, reason, message string) {
	write(w, code, object{
		"kind":       "Status",
		"apiVersion": "v1",
		"status":     "Failure",
		"code":       code,
		"reason":     reason,
		"message":    message,
	})
}

func write(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // fails only if the client is gone
}
