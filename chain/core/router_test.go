package core

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	restful "github.com/emicklei/go-restful/v3"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// podRoutes returns routes as the generic server installs them for a resource.
func podRoutes() *restful.WebService {
	service := (&restful.WebService{}).Path("/api/v1").Consumes("*/*").Produces("application/json")
	nothing := func(*restful.Request, *restful.Response) {}
	for _, path := range []string{
		"/pods", "/namespaces/{namespace}/pods", "/watch/pods", "/watch/namespaces/{namespace}/pods",
		"/watch/namespaces/{namespace}/pods/{name}", "/namespaces/{namespace}/pods/{name}",
		"/namespaces/{namespace}/pods/{name}/log", "/namespaces/{namespace}/pods/{name}/status",
		"/namespaces/{namespace}/pods/{name}/proxy",
		"/namespaces/{namespace}/pods/{name}/proxy/{path:*}",
	} {
		service.Route(service.GET(path).To(nothing))
	}
	service.Route(service.POST("/namespaces/{namespace}/pods").To(nothing))
	service.Route(service.DELETE("/namespaces/{namespace}/pods").To(nothing))
	service.Route(service.PATCH("/namespaces/{namespace}/pods/{name}").
		Consumes("application/merge-patch+json").To(nothing))
	service.Route(service.PUT("/namespaces/{namespace}/pods/{name}/status").To(nothing))
	return service
}

// TestRouter compares the routes that are selected for requests, once and again, with those that
// restful.CurlyRouter selects.
func TestRouter(t *testing.T) {
	t.Parallel()
	services := []*restful.WebService{podRoutes()}
	infos := &request.RequestInfoFactory{
		APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api"),
	}
	known := &router{}
	found := 0
	for range 2 {
		for _, path := range []string{
			"/pods", "/pods/", "/pods/a", "/pods/a/log", "//pods", "/watch/pods", "/watch/pods/a",
			"/namespaces/n/pods", "/namespaces/n/pods/", "/namespaces//pods", "/namespaces/m/pods",
			"/namespaces/n/pods/a", "/namespaces/n/pods/b", "/namespaces/n/pods/a/log",
			"/namespaces/n/pods/a/status", "/namespaces/n/pods/a/other", "/namespaces/n/pods/log/a",
			"/namespaces/n/pods/a/proxy", "/namespaces/n/pods/a/proxy/", "/namespaces/n/pods/a/proxy/b",
			"/namespaces/n/pods/a/proxy/b/c", "/namespaces/n/pods/proxy/a", "/namespaces/pods/pods/pods",
			"/watch/namespaces/n/pods", "/watch/namespaces/n/pods/a", "/namespaces/watch/pods/a",
			"/watch/namespaces/pods", "/namespaces/watch/pods",
		} {
			for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} {
				for _, header := range []http.Header{
					{}, {"Accept": {"application/json"}}, {"Accept": {"text/html"}},
					{"Accept": {"text/html", "application/json"}},
					{"Content-Type": {"application/merge-patch+json"}}, {"Content-Type": {"text/plain"}},
				} {
					for _, query := range []string{"", "?watch=1"} {
						r := httptest.NewRequestWithContext(t.Context(), method, "/api/v1"+path+query, nil)
						r.Header = header
						info, err := infos.NewRequestInfo(r)
						if err != nil {
							t.Fatal(err)
						}
						r = r.WithContext(request.WithRequestInfo(r.Context(), info))
						_, want, wantErr := restful.CurlyRouter{}.SelectRoute(services, r)
						_, got, err := known.SelectRoute(services, r)
						if (err == nil) != (wantErr == nil) || err != nil && err.Error() != wantErr.Error() ||
							want != nil && want.String() != got.String() {
							t.Errorf("%s %s %v: %v %v, want %v %v", method, r.URL, header, got, err, want, wantErr)
						}
						if err == nil {
							found++
						}
					}
				}
			}
		}
	}
	long := httptest.NewRequestWithContext(t.Context(), "GET", "/api/v1/pods", nil)
	long.Header.Set("Accept", "application/json,"+strings.Repeat("x", maxHeaders))
	info, err := infos.NewRequestInfo(long)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := shapeOf(long.WithContext(request.WithRequestInfo(long.Context(), info))); ok {
		t.Error("a long header is remembered")
	}
	if n := known.shapes.Load(); found < 200 || n == 0 || int(n) > found/2 {
		t.Errorf("%d of %d selections were made anew", n, found)
	}
}
