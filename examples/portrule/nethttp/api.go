package nethttp

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
)

const (
	group        = "net.example.com"
	version      = "v1"
	groupVersion = group + "/" + version
)

type object = map[string]any

// portRule is an object. Metadata has what clients send, besides what the server sets.
type portRule struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Metadata   map[string]any `json:"metadata"`
	Spec       struct {
		Protocol string `json:"protocol,omitempty"`
		From     int    `json:"from"`
		To       int    `json:"to"`
	} `json:"spec"`
	Status struct {
		Phase string `json:"phase,omitempty"`
	} `json:"status"`
}

func (p portRule) meta(name string) string {
	value, _ := p.Metadata[name].(string)
	return value
}

func (p portRule) key() string { return p.meta("namespace") + "/" + p.meta("name") }

// event is an entry of the history, for watches.
type event struct {
	Type      string   `json:"type"`
	Object    portRule `json:"object"`
	namespace string
	version   int
}

// api keeps port rules in memory.
type api struct {
	mu      sync.Mutex
	rules   map[string]portRule // by namespace/name
	history []event             // the version of an event is its index plus one
	changed chan struct{}       // closed by the next change
}

func newAPI() http.Handler {
	a := &api{rules: map[string]portRule{}, changed: make(chan struct{})}
	mux := http.NewServeMux()
	versions := []object{{"groupVersion": groupVersion, "version": version}}
	self := object{
		"kind": "APIGroup", "apiVersion": "v1", "name": group,
		"versions": versions, "preferredVersion": versions[0],
	}
	mux.HandleFunc("GET /apis",
		serve(object{"kind": "APIGroupList", "apiVersion": "v1", "groups": []object{self}}))
	mux.HandleFunc("GET /apis/"+group, serve(self))
	mux.HandleFunc("GET /apis/"+groupVersion, serve(object{
		"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": groupVersion,
		"resources": []object{{
			"name": "portrules", "singularName": "portrule", "kind": "PortRule", "namespaced": true,
			"verbs": []string{"create", "delete", "get", "list", "patch", "update", "watch"},
		}, {
			"name": "portrules/status", "singularName": "", "kind": "PortRule", "namespaced": true,
			"verbs": []string{"get", "patch", "update"},
		}},
	}))
	all := "/apis/" + groupVersion + "/namespaces/{namespace}/portrules"
	mux.HandleFunc("GET /apis/"+groupVersion+"/portrules", a.list)
	mux.HandleFunc("GET "+all, a.list)
	mux.HandleFunc("POST "+all, a.create)
	mux.HandleFunc("DELETE "+all+"/{name}", a.delete)
	for _, path := range []string{all + "/{name}", all + "/{name}/status"} {
		mux.HandleFunc("GET "+path, a.get)
		mux.HandleFunc("PUT "+path, a.update)
		mux.HandleFunc("PATCH "+path, a.update)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeStatus(w, http.StatusNotFound, "NotFound", "the server could not find "+r.URL.Path)
	})
	return mux
}

func serve(body object) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { write(w, http.StatusOK, body) }
}

func (a *api) list(w http.ResponseWriter, r *http.Request) {
	namespace := r.PathValue("namespace") // empty for all namespaces
	if watch, _ := strconv.ParseBool(r.URL.Query().Get("watch")); watch {
		a.watch(w, r, namespace)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	name, byName := strings.CutPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")
	items := []portRule{}
	for _, p := range a.rules {
		if (namespace == "" || p.meta("namespace") == namespace) &&
			(!byName || p.meta("name") == name) {
			items = append(items, p)
		}
	}
	slices.SortFunc(items, func(x, y portRule) int { return cmp.Compare(x.key(), y.key()) })
	metadata := object{"resourceVersion": strconv.Itoa(len(a.history))}
	if wantsTable(r) {
		write(w, http.StatusOK, table(metadata, items...))
		return
	}
	write(w, http.StatusOK, object{
		"kind": "PortRuleList", "apiVersion": groupVersion, "metadata": metadata, "items": items,
	})
}

// watch sends the changes since a version until the client leaves.
func (a *api) watch(w http.ResponseWriter, r *http.Request, namespace string) {
	a.mu.Lock()
	last := len(a.history)
	a.mu.Unlock()
	if since := r.URL.Query().Get("resourceVersion"); since != "" && since != "0" {
		given, err := strconv.Atoi(since)
		if err != nil || given > last || given < 0 {
			writeStatus(w, http.StatusGone, "Expired", "too old or unknown resource version "+since)
			return
		}
		last = given
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	for {
		_ = http.NewResponseController(w).Flush()
		a.mu.Lock()
		events, changed := slices.Clone(a.history[last:]), a.changed
		a.mu.Unlock()
		for _, e := range events {
			last = e.version
			if namespace != "" && e.namespace != namespace {
				continue
			}
			if json.NewEncoder(w).Encode(e) != nil {
				return
			}
		}
		_ = http.NewResponseController(w).Flush()
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

func (a *api) create(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	var p portRule
	if err == nil {
		p, err = decode(body)
	}
	if err != nil {
		writeStatus(w, http.StatusBadRequest, "BadRequest", err.Error())
		return
	}
	p.Metadata["namespace"], p.Status.Phase = r.PathValue("namespace"), ""
	if message := p.invalid(); message != "" {
		writeStatus(w, http.StatusUnprocessableEntity, "Invalid", message)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, exists := a.rules[p.key()]; exists {
		writeStatus(w, http.StatusConflict, "AlreadyExists",
			fmt.Sprintf("portrules %q already exists", p.meta("name")))
		return
	}
	p.Metadata["uid"] = rand.Text()
	p.Metadata["creationTimestamp"] = time.Now().UTC().Format(time.RFC3339)
	write(w, http.StatusCreated, a.store("ADDED", p))
}

func (a *api) get(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p, ok := a.find(w, r)
	switch {
	case ok && wantsTable(r):
		write(w, http.StatusOK, table(object{"resourceVersion": p.meta("resourceVersion")}, p))
	case ok:
		write(w, http.StatusOK, p)
	}
}

// update serves PUT and PATCH of an object and of its status.
func (a *api) update(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err != nil {
		writeStatus(w, http.StatusBadRequest, "BadRequest", err.Error())
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	old, ok := a.find(w, r)
	if !ok {
		return
	}
	if r.Method == http.MethodPatch {
		if of := r.Header.Get("Content-Type"); of != "application/merge-patch+json" {
			writeStatus(w, http.StatusUnsupportedMediaType, "UnsupportedMediaType",
				"the server does not support patches of type "+of)
			return
		}
		current, _ := json.Marshal(old) // it came from JSON
		if body, err = jsonpatch.MergePatch(current, body); err != nil {
			writeStatus(w, http.StatusBadRequest, "BadRequest", err.Error())
			return
		}
	}
	p, err := decode(body)
	if err != nil {
		writeStatus(w, http.StatusBadRequest, "BadRequest", err.Error())
		return
	}
	p.Metadata["namespace"] = r.PathValue("namespace")
	if v := p.meta("resourceVersion"); p.key() != old.key() ||
		v != "" && v != old.meta("resourceVersion") {
		writeStatus(w, http.StatusConflict, "Conflict",
			fmt.Sprintf("portrules %q has been modified: get it again", old.meta("name")))
		return
	}
	if strings.HasSuffix(r.URL.Path, "/status") {
		p.Spec = old.Spec
	} else {
		p.Status = old.Status
	}
	if message := p.invalid(); message != "" {
		writeStatus(w, http.StatusUnprocessableEntity, "Invalid", message)
		return
	}
	for _, name := range []string{"uid", "creationTimestamp"} {
		p.Metadata[name] = old.Metadata[name]
	}
	write(w, http.StatusOK, a.store("MODIFIED", p))
}

func (a *api) delete(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p, ok := a.find(w, r); ok {
		delete(a.rules, p.key())
		a.record("DELETED", p)
		write(w, http.StatusOK, object{"kind": "Status", "apiVersion": "v1", "status": "Success"})
	}
}

// store stores p with a new version. The caller holds the mutex.
func (a *api) store(change string, p portRule) portRule {
	p = a.record(change, p)
	a.rules[p.key()] = p
	return p
}

// record adds a change to the history. The caller holds the mutex.
func (a *api) record(change string, p portRule) portRule {
	version := len(a.history) + 1
	p.Metadata = maps.Clone(p.Metadata) // the history has the old one
	p.Metadata["resourceVersion"] = strconv.Itoa(version)
	a.history = append(a.history, event{change, p, p.meta("namespace"), version})
	close(a.changed)
	a.changed = make(chan struct{})
	return p
}

// find returns the requested object, or writes a 404 response. The caller holds the mutex.
func (a *api) find(w http.ResponseWriter, r *http.Request) (portRule, bool) {
	p, ok := a.rules[r.PathValue("namespace")+"/"+r.PathValue("name")]
	if !ok {
		writeStatus(w, http.StatusNotFound, "NotFound",
			fmt.Sprintf("portrules %q not found", r.PathValue("name")))
	}
	return p, ok
}

// decode returns the object in a body, with defaults.
func decode(body []byte) (portRule, error) {
	var p portRule
	decoder := json.NewDecoder(bytes.NewReader(body))
	if err := decoder.Decode(&p); err != nil {
		return p, err
	}
	if p.APIVersion != groupVersion || p.Kind != "PortRule" || p.meta("name") == "" {
		return p, fmt.Errorf("the body must be a PortRule of %s with a name", groupVersion)
	}
	if p.Spec.Protocol == "" {
		p.Spec.Protocol = "TCP"
	}
	return p, nil
}

// invalid returns what is wrong with an object.
func (p portRule) invalid() string {
	var problems []string
	if p.Spec.From < 1 || p.Spec.From > 65535 {
		problems = append(problems, fmt.Sprintf("spec.from: %d is not a port", p.Spec.From))
	}
	if p.Spec.To < p.Spec.From || p.Spec.To > 65535 {
		problems = append(problems,
			fmt.Sprintf("spec.to: %d must be from spec.from to 65535", p.Spec.To))
	}
	if p.Spec.Protocol != "TCP" && p.Spec.Protocol != "UDP" {
		problems = append(problems,
			fmt.Sprintf("spec.protocol: %q must be TCP or UDP", p.Spec.Protocol))
	}
	return strings.Join(problems, ", ")
}

func wantsTable(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), "as=Table")
}

// table returns what kubectl get prints.
func table(metadata object, rules ...portRule) object {
	rows := []object{}
	for _, p := range rules {
		ports := fmt.Sprintf("%d-%d", p.Spec.From, p.Spec.To)
		rows = append(rows, object{
			"cells": []any{p.meta("name"), ports, p.Spec.Protocol, p.Status.Phase},
			"object": object{
				"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": p.Metadata,
			},
		})
	}
	column := func(name, format string) object {
		return object{
			"name": name, "type": "string", "format": format, "description": "", "priority": 0,
		}
	}
	return object{
		"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "rows": rows,
		"columnDefinitions": []object{
			column("Name", "name"), column("Ports", ""), column("Protocol", ""), column("Phase", ""),
		},
	}
}

// writeStatus writes an error as a Status object, as Kubernetes clients expect it.
func writeStatus(w http.ResponseWriter, code int, reason, message string) {
	write(w, code, object{
		"kind": "Status", "apiVersion": "v1", "status": "Failure",
		"code": code, "reason": reason, "message": message,
	})
}

func write(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // fails only if the client is gone
}
