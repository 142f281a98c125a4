package core

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
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/apiserver/pkg/server/routes"
	openapicommon "k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/handler3"
)

// specs serves the OpenAPI documents of the container's web services. Each document is built on its
// first request.
//
// Building all of them takes about 150 ms of CPU, more than the rest of the start, and many control
// planes are never asked for them. The index at /openapi/v3, which the aggregator reads at every
// start, identifies each document by a hash. Here the hash is computed from what the document is
// built from, not from its contents.
type specs struct {
	v2    func() http.Handler
	v3    map[string]*groupSpec // by path, such as "apis/apps/v1"
	index []byte
}

// groupSpec is the OpenAPI v3 document of a group version.
type groupSpec struct {
	hash    string
	handler func() http.Handler
}

func newSpecs(
	container *restful.Container, versions *onDemand, v2 *openapicommon.Config,
	v3 *openapicommon.OpenAPIV3Config,
) (*specs, error) {
	s := &specs{
		v2: sync.OnceValue(func() http.Handler {
			if err := versions.installAll(); err != nil {
				return refusing(versions.server, err)
			}
			m := mux.NewPathRecorderMux("openapi-v2")
			routes.OpenAPI{Config: v2}.InstallV2(container, m)
			return m
		}),
		v3: map[string]*groupSpec{},
	}
	document := func(service *restful.WebService) http.Handler {
		models.building.Lock()
		defer models.building.Unlock()
		m := mux.NewPathRecorderMux("openapi-v3")
		routes.OpenAPI{V3Config: v3}.InstallV3(restful.NewContainer().Add(service), m)
		return m
	}
	build := buildID()
	for _, service := range container.RegisteredWebServices() {
		var lines []string
		for _, r := range service.Routes() {
			lines = append(lines, r.Method+" "+r.Path)
		}
		slices.Sort(lines)
		s.v3[strings.TrimPrefix(service.RootPath(), "/")] = &groupSpec{
			hash:    hash(build, lines),
			handler: sync.OnceValue(func() http.Handler { return document(service) }),
		}
	}
	for root, v := range versions.versions {
		s.v3[strings.TrimPrefix(root, "/")] = &groupSpec{
			hash: hash(build, append([]string{root}, v.resources...)),
			handler: sync.OnceValue(func() http.Handler {
				if err := v.install(); err != nil {
					return refusing(versions.server, err)
				}
				services := container.RegisteredWebServices()
				i := slices.IndexFunc(services, func(ws *restful.WebService) bool {
					return ws.RootPath() == root
				})
				return document(services[i])
			}),
		}
	}
	index := handler3.OpenAPIV3Discovery{Paths: map[string]handler3.OpenAPIV3DiscoveryGroupVersion{}}
	for path, g := range s.v3 {
		index.Paths[path] = handler3.OpenAPIV3DiscoveryGroupVersion{
			ServerRelativeURL: "/openapi/v3/" + path + "?hash=" + url.QueryEscape(g.hash),
		}
	}
	var err error
	if s.index, err = json.Marshal(index); err != nil {
		return nil, fmt.Errorf("index of /openapi/v3: %w", err)
	}
	return s, nil
}

// refusing answers all requests with an error.
func refusing(s *genericapiserver.GenericAPIServer, err error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { refuse(w, r, s, err) })
}

// install serves the documents at the paths that kube-apiserver uses.
func (s *specs) install(m *mux.PathRecorderMux) {
	m.Handle("/openapi/v2", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.v2().ServeHTTP(w, r)
	}))
	m.Handle("/openapi/v3", http.HandlerFunc(s.serveIndex))
	m.HandlePrefix("/openapi/v3/", http.HandlerFunc(s.serveGroup))
}

func (s *specs) serveIndex(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(s.index) // an error means that the client is gone
}

func (s *specs) serveGroup(w http.ResponseWriter, r *http.Request) {
	g, ok := s.v3[strings.TrimPrefix(r.URL.Path, "/openapi/v3/")]
	if !ok {
		http.NotFound(w, r)
		return
	}
	query := r.URL.Query()
	if hash := query.Get("hash"); hash != "" {
		if hash != g.hash {
			query.Set("hash", g.hash)
			http.Redirect(w, r, r.URL.Path+"?"+query.Encode(), http.StatusMovedPermanently)
			return
		}
		// The document of a given hash never changes.
		w.Header().Set("Cache-Control", "public, immutable")
		r = r.Clone(r.Context())
		r.URL.RawQuery = "" // the handler below would compare it with its own hash of the contents
	}
	g.handler().ServeHTTP(w, r)
}

// hash returns a hash that identifies an OpenAPI document. The document depends on what it
// describes and on the Go types, and build identifies the types.
func hash(build string, describes []string) string {
	sum := sha256.Sum256([]byte(build + "\n" + strings.Join(describes, "\n")))
	return strings.ToUpper(hex.EncodeToString(sum[:]))
}

// buildID returns an ID that differs between builds of the program.
func buildID() string {
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
}
