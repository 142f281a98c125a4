package aggregator

import (
	"net/http"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/server/mux"
	apiregistrationlisters "k8s.io/kube-aggregator/pkg/client/listers/apiregistration/v1"
)

// servicePaths serves the paths of APIServices. A table of paths is sorted and copied for each path
// that is added to it, so the APIServices that exist when the server starts get small tables: one
// for each API group.
//
// The library adds and removes the paths of other APIServices later, and knows the later table
// only. A path in another table therefore counts only while its APIService exists.
type servicePaths struct {
	later    *mux.PathRecorderMux
	atStart  sync.Map // of *mux.PathRecorderMux, by group
	services apiregistrationlisters.APIServiceLister
	next     http.Handler
}

func newServicePaths(
	services apiregistrationlisters.APIServiceLister, next http.Handler,
) *servicePaths {
	p := &servicePaths{mux.NewPathRecorderMux("APIServices"), sync.Map{}, services, next}
	p.later.NotFoundHandler(http.HandlerFunc(p.serveAtStart))
	return p
}

// ServeHTTP implements http.Handler.
func (p *servicePaths) ServeHTTP(w http.ResponseWriter, r *http.Request) { p.later.ServeHTTP(w, r) }

func (p *servicePaths) serveAtStart(w http.ResponseWriter, r *http.Request) {
	group, service := servicePath(r.URL.Path)
	table, ok := p.atStart.Load(group)
	if ok && service != "" {
		_, err := p.services.Get(service)
		ok = err == nil
	}
	if !ok {
		p.next.ServeHTTP(w, r)
		return
	}
	table.(*mux.PathRecorderMux).ServeHTTP(w, r)
}

// table returns the table for the APIServices of a group that exist when the server starts.
func (p *servicePaths) table(group string) *mux.PathRecorderMux {
	if table, ok := p.atStart.Load(group); ok {
		return table.(*mux.PathRecorderMux)
	}
	table := mux.NewPathRecorderMux("APIServices of " + group)
	table.NotFoundHandler(p.next)
	p.atStart.Store(group, table)
	return table
}

// ListedPaths implements routes.ListedPathProvider.
func (p *servicePaths) ListedPaths() []string {
	paths := p.later.ListedPaths()
	services, err := p.services.List(labels.Everything())
	if err != nil {
		return paths
	}
	names, groups := map[string]bool{}, map[string]bool{}
	for _, s := range services {
		names[s.Name], groups[s.Spec.Group] = true, true
	}
	p.atStart.Range(func(_, table any) bool {
		for _, path := range table.(*mux.PathRecorderMux).ListedPaths() {
			if group, service := servicePath(path); names[service] || service == "" && groups[group] {
				paths = append(paths, path)
			}
		}
		return true
	})
	return paths
}

// servicePath returns the API group of a path and the name of its APIService. The path of a group
// has no APIService; another path has neither.
func servicePath(path string) (group, service string) {
	if path == "/api" || strings.HasPrefix(path, "/api/") {
		return "", "v1."
	}
	path, ok := strings.CutPrefix(path, "/apis/")
	if !ok {
		return "", ""
	}
	group, path, _ = strings.Cut(path, "/")
	if version, _, _ := strings.Cut(path, "/"); version != "" {
		service = version + "." + group
	}
	return group, service
}
