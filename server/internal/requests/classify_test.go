package requests

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/kinproc/kinproc/chain/trace"
	"github.com/kinproc/kinproc/server/internal/requests/paths"
)

func TestLongRunning(t *testing.T) {
	t.Parallel()
	proxied := func(path string) bool { return strings.HasPrefix(path, "/apis/chat.example.com/") }
	for _, test := range []struct {
		method, path, upgrade string
		want                  bool
	}{
		{http.MethodGet, "/apis/chat.example.com/v1/namespaces/n/rooms/lobby/talk", "websocket", true},
		{http.MethodGet, "/apis/chat.example.com/v1/rooms/lobby/talk", "websocket", true},
		{http.MethodPost, "/apis/chat.example.com/v1/namespaces/n/rooms/lobby/talk", "SPDY/3.1", true},
		{http.MethodGet, "/api/v1/namespaces/n/pods/p/exec", "websocket", true},
		{http.MethodGet, "/api/v1/namespaces/n/pods/p/log", "", true},
		{http.MethodGet, "/api/v1/namespaces/n/services/s/proxy/path", "", true},
		{http.MethodGet, "/api/v1/pods?watch=true", "", true},
		{http.MethodGet, "/api/v1/watch/pods", "websocket", true},

		{http.MethodGet, "/apis/chat.example.com/v1/namespaces/n/rooms/lobby/talk", "", false},
		{http.MethodPut, "/apis/chat.example.com/v1/namespaces/n/rooms/lobby/talk", "websocket", false},
		{http.MethodGet, "/apis/chat.example.com/v1/namespaces/n/rooms/lobby", "websocket", false},
		{http.MethodPut, "/api/v1/namespaces/n/pods/p/status", "websocket", false},
		{http.MethodGet, "/api/v1/namespaces/n/pods/p/status", "websocket", false},
		{http.MethodPost, "/api/v1/namespaces/n/pods/p/eviction", "SPDY/3.1", false},
		{http.MethodGet, "/apis/crd.example.com/v1/namespaces/n/things/t/scale", "websocket", false},
		{http.MethodGet, "/api/v1/pods", "websocket", false},
		{http.MethodGet, "/api/v1/namespaces/n/pods/p", "websocket", false},
		{http.MethodGet, "/healthz", "websocket", false},
	} {
		r := httptest.NewRequest(test.method, test.path, nil)
		if test.upgrade != "" {
			r.Header.Set("Connection", "keep-alive, Upgrade")
			r.Header.Set("Upgrade", test.upgrade)
		}
		facts := classify(r, proxied)
		if got := facts.Class == LongRunning; got != test.want {
			t.Errorf("%s %s with Upgrade: %q: got long-running %t",
				test.method, test.path, test.upgrade, got)
		}
	}
}

func TestClasses(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		method, path string
		want         Class
		streams      bool
	}{
		{http.MethodGet, "/api/v1/namespaces/n/pods/p", Read, false},
		{http.MethodHead, "/api/v1/namespaces/n/pods/p", Read, false},
		{http.MethodOptions, "/apis", Read, false},
		{http.MethodGet, "/readyz", Read, false},
		{http.MethodGet, "/api/v1/pods", Read, true},
		{http.MethodGet, "/api/v1/namespaces/n/pods?limit=3", Read, true},
		{http.MethodGet, "/api/v1/pods?watch=true", LongRunning, true},
		{http.MethodGet, "/debug/kinproc/follow", Read, false},
		{http.MethodPost, "/api/v1/namespaces/n/pods", Write, false},
		{http.MethodPatch, "/api/v1/namespaces/n/pods/p", Write, false},
		{http.MethodDelete, "/api/v1/namespaces/n/pods", Write, false},
		{http.MethodPost, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", Review, false},
		{http.MethodPost, "/apis/authentication.k8s.io/v1/tokenreviews", Review, false},
		{http.MethodPost, "/api/v1/namespaces/n/pods/p/exec", LongRunning, true},
		{http.MethodGet, trace.FollowPath, LongRunning, true},
		{http.MethodGet, paths.Snapshot, Snapshot, true},
		{http.MethodPost, paths.Reset, Snapshot, true},
	} {
		facts := classify(httptest.NewRequest(test.method, test.path, nil),
			func(string) bool { return false })
		if facts.Class != test.want || facts.streams() != test.streams {
			t.Errorf("%s %s: class %d, streams %t; want %d, %t", test.method, test.path, facts.Class,
				facts.streams(), test.want, test.streams)
		}
	}
}
