package openapi

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	restful "github.com/emicklei/go-restful/v3"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/apiserver/pkg/server/routes"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/handler3"
)

// root is the path of the index of the OpenAPI v3 documents.
const root = "/openapi/v3"

// Documents serves OpenAPI v3 documents and their index. Each document is built by its first
// request.
//
// Building all documents of the core-like server takes about 150 ms of CPU, more than the rest of
// the start, and many control planes are never asked for them. The index, which the aggregator
// reads at every start, identifies each document by a hash. Here the hash is computed from what the
// document is built from, not from its contents.
type Documents struct {
	documents map[string]*document
	index     []byte
}

type document struct {
	hash    string
	handler func() http.Handler
}

// Source is what a document is built from.
type Source struct {
	// Describes lists what the document describes. Together with the Go types of the program, that
	// determines its contents.
	Describes []string
	// Handler returns what serves the document. It is called once.
	Handler func() http.Handler
}

// NewDocuments returns documents by their paths, such as "apis/apps/v1".
func NewDocuments(sources map[string]Source) (*Documents, error) {
	d := &Documents{documents: make(map[string]*document, len(sources))}
	index := handler3.OpenAPIV3Discovery{
		Paths: make(map[string]handler3.OpenAPIV3DiscoveryGroupVersion, len(sources)),
	}
	for path, source := range sources {
		hash := hash(source.Describes)
		d.documents[path] = &document{hash: hash, handler: sync.OnceValue(source.Handler)}
		index.Paths[path] = handler3.OpenAPIV3DiscoveryGroupVersion{
			ServerRelativeURL: root + "/" + path + "?hash=" + url.QueryEscape(hash),
		}
	}
	var err error
	if d.index, err = json.Marshal(index); err != nil {
		return nil, fmt.Errorf("index of %s: %w", root, err)
	}
	return d, nil
}

// OfServices returns the sources of the documents of web services, which build builds.
func OfServices(
	services []*restful.WebService, build func(*restful.WebService) http.Handler,
) map[string]Source {
	sources := make(map[string]Source, len(services))
	for _, service := range services {
		var describes []string
		for _, r := range service.Routes() {
			describes = append(describes, r.Method+" "+r.Path)
		}
		slices.Sort(describes)
		sources[strings.TrimPrefix(service.RootPath(), "/")] = Source{
			Describes: describes,
			Handler:   func() http.Handler { return build(service) },
		}
	}
	return sources
}

// Build builds the document of a web service and returns what serves it. The document has copies of
// the extensions of definitions: the builder changes them, while other documents may be marshaled.
func Build(service *restful.WebService, config *common.OpenAPIV3Config) http.Handler {
	own := *config
	own.Definitions = withOwnExtensions(config.Definitions)
	m := mux.NewPathRecorderMux("openapi-v3")
	routes.OpenAPI{V3Config: &own}.InstallV3(restful.NewContainer().Add(service), m)
	return m
}

// Install serves the documents at the paths that kube-apiserver uses.
func (d *Documents) Install(m *mux.PathRecorderMux) {
	m.Handle(root, http.HandlerFunc(d.serveIndex))
	m.HandlePrefix(root+"/", http.HandlerFunc(d.serveDocument))
}

func (d *Documents) serveIndex(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(d.index) // an error means that the client is gone
}

func (d *Documents) serveDocument(w http.ResponseWriter, r *http.Request) {
	document, ok := d.documents[strings.TrimPrefix(r.URL.Path, root+"/")]
	if !ok {
		http.NotFound(w, r)
		return
	}
	query := r.URL.Query()
	if hash := query.Get("hash"); hash != "" {
		if hash != document.hash {
			query.Set("hash", document.hash)
			http.Redirect(w, r, r.URL.Path+"?"+query.Encode(), http.StatusMovedPermanently)
			return
		}
		// The document of a given hash never changes.
		w.Header().Set("Cache-Control", "public, immutable")
		r = r.Clone(r.Context())
		r.URL.RawQuery = "" // the handler below would compare it with its own hash of the contents
	}
	document.handler().ServeHTTP(w, r)
}

// hash returns a hash that identifies a document in this build of the program.
func hash(describes []string) string {
	sum := sha256.Sum256([]byte(buildID() + "\n" + strings.Join(describes, "\n")))
	return strings.ToUpper(hex.EncodeToString(sum[:]))
}

// buildID returns an ID that differs between builds of the program, and so with the Go types.
var buildID = sync.OnceValue(func() string {
	id := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		id = info.String()
	}
	// Two builds of the same modified checkout have the same build info.
	if exe, err := os.Executable(); err == nil {
		if stat, err := os.Stat(exe); err == nil {
			id += fmt.Sprint(stat.ModTime().UnixNano(), stat.Size())
		}
	}
	return id
})
