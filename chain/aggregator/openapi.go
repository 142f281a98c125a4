package aggregator

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/client-go/transport"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistrationlisters "k8s.io/kube-aggregator/pkg/client/listers/apiregistration/v1"
	openapiv2aggregator "k8s.io/kube-aggregator/pkg/controllers/openapi/aggregator"
	openapiv3aggregator "k8s.io/kube-aggregator/pkg/controllers/openapiv3/aggregator"
	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/openapiconv"
)

// openAPIRoot is the path of the index of the OpenAPI v3 documents. A document is at the path of
// its group version below it.
const openAPIRoot = "/openapi/v3"

// documents serves the OpenAPI v3 documents of all servers, as kube-aggregator does.
// Kube-aggregator asks each server of the chain for its index once a second, and an extension API
// server a second after its APIService was created. Here a request for the index asks the servers
// of the chain, and an extension API server is asked before its APIService becomes available, so
// that clients find the documents as soon as they find the kinds.
type documents struct {
	services apiregistrationlisters.APIServiceLister
	local    []http.Handler

	mu sync.RWMutex
	// remote has the documents of extension API servers, by the name of the APIService.
	remote map[string]remoteDocuments
}

// remoteDocuments are those of an extension API server.
type remoteDocuments struct {
	paths   map[string]handler3.OpenAPIV3DiscoveryGroupVersion
	handler http.Handler
}

func newDocuments(
	services apiregistrationlisters.APIServiceLister, next genericapiserver.DelegationTarget,
) *documents {
	d := &documents{services: services, remote: map[string]remoteDocuments{}}
	for ; next != nil; next = next.NextDelegate() {
		if handler := next.UnprotectedHandler(); handler != nil {
			d.local = append(d.local, handler)
		}
	}
	return d
}

// install serves the documents instead of the library's handlers.
func (d *documents) install(m *mux.PathRecorderMux) {
	m.Unregister(openAPIRoot)
	m.Unregister(openAPIRoot + "/")
	m.Handle(openAPIRoot, http.HandlerFunc(d.serveIndex))
	m.HandlePrefix(openAPIRoot+"/", http.HandlerFunc(d.serveDocument))
}

func (d *documents) serveIndex(w http.ResponseWriter, r *http.Request) {
	merged := handler3.OpenAPIV3Discovery{Paths: map[string]handler3.OpenAPIV3DiscoveryGroupVersion{}}
	for _, remote := range d.remotes() {
		maps.Copy(merged.Paths, remote.paths)
	}
	for _, handler := range d.local { // last, so that nobody else describes its kinds
		maps.Copy(merged.Paths, localIndex(r.Context(), handler))
	}
	body, err := json.Marshal(merged)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	http.ServeContent(w, r, openAPIRoot, time.Now(), bytes.NewReader(body))
}

func (d *documents) serveDocument(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, openAPIRoot+"/")
	for _, handler := range d.local {
		if _, ok := localIndex(r.Context(), handler)[path]; ok {
			handler.ServeHTTP(w, r)
			return
		}
	}
	for _, remote := range d.remotes() {
		if _, ok := remote.paths[path]; ok {
			remote.handler.ServeHTTP(w, r)
			return
		}
	}
	w.WriteHeader(http.StatusNotFound)
}

// remotes returns the documents of the extension API servers that have an APIService.
func (d *documents) remotes() []remoteDocuments {
	d.mu.RLock()
	defer d.mu.RUnlock()
	var remotes []remoteDocuments
	for name, remote := range d.remote {
		if service, err := d.services.Get(name); err == nil && service.Spec.Service != nil {
			remotes = append(remotes, remote)
		}
	}
	return remotes
}

// localIndex returns the paths of the documents that a server of the chain has.
func localIndex(
	ctx context.Context, handler http.Handler,
) map[string]handler3.OpenAPIV3DiscoveryGroupVersion {
	var downloader openapiv3aggregator.Downloader
	index, status, err := downloader.OpenAPIV3Root(handler)
	if err != nil {
		utilruntime.HandleErrorWithContext(ctx, err, "Failed to list OpenAPI documents")
	}
	if err != nil || status != http.StatusOK {
		return nil
	}
	return index.Paths
}

// update asks an extension API server for its documents. It makes a document of version 3 if the
// server has only one of version 2.
func (d *documents) update(
	ctx context.Context, service *apiregistrationv1.APIService, handler http.Handler,
) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	bounded := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		request, cancel := context.WithCancel(r.Context())
		defer context.AfterFunc(ctx, cancel)()
		defer cancel()
		handler.ServeHTTP(w, r.WithContext(request))
	})
	var downloader openapiv3aggregator.Downloader
	index, status, err := downloader.OpenAPIV3Root(bounded)
	if err != nil {
		return err
	}
	if status == http.StatusNotFound {
		converted, err := convert(bounded, "apis/"+service.Spec.Group+"/"+service.Spec.Version)
		if err != nil {
			return err
		}
		handler = converted
		if index, _, err = downloader.OpenAPIV3Root(handler); err != nil {
			return err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.remote[service.Name] = remoteDocuments{index.Paths, handler}
	return nil
}

// convert returns what serves the document of version 2 that handler serves as one of version 3.
func convert(handler http.Handler, path string) (http.Handler, error) {
	var downloader openapiv2aggregator.Downloader
	document, _, status, err := downloader.Download(handler, "")
	if err != nil {
		return nil, err
	}
	service := handler3.NewOpenAPIService()
	if status == http.StatusOK {
		service.UpdateGroupVersion(path, openapiconv.ConvertV2ToV3(document))
	}
	m := mux.NewPathRecorderMux("converted OpenAPI documents")
	return m, service.RegisterOpenAPIV3VersionedService(openAPIRoot, m)
}

func (d *documents) remove(service string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.remote, service)
}

// forward returns what sends requests to the extension API server of an APIService, as their users.
func (a *availability) forward(service *apiregistrationv1.APIService) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		address, roundTripper, err := a.connect(service)
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		user, ok := genericapirequest.UserFrom(r.Context())
		if !ok {
			http.Error(w, "the request has no user", http.StatusInternalServerError)
			return
		}
		proxy := &httputil.ReverseProxy{
			Transport: roundTripper,
			Rewrite: func(p *httputil.ProxyRequest) {
				p.Out.URL.Scheme, p.Out.URL.Host = address.Scheme, address.Host
				p.Out.Host = ""
				p.Out.Header.Del("Authorization")
				transport.SetAuthProxyHeaders(p.Out, user.GetName(), user.GetUID(), user.GetGroups(),
					user.GetExtra())
			},
			ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
			},
		}
		proxy.ServeHTTP(w, r)
	})
}
