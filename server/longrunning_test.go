package server

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
)

func TestLongRunning(t *testing.T) {
	t.Parallel()
	resolver := &genericapirequest.RequestInfoFactory{
		APIPrefixes:          sets.NewString("api", "apis"),
		GrouplessAPIPrefixes: sets.NewString("api"),
	}
	check := longRunning(func(path string) bool {
		return strings.HasPrefix(path, "/apis/chat.example.com/")
	})
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
		info, err := resolver.NewRequestInfo(r)
		if err != nil {
			t.Fatal(err)
		}
		if got := check(r, info); got != test.want {
			t.Errorf("%s %s with Upgrade: %q: got long-running %t",
				test.method, test.path, test.upgrade, got)
		}
	}
}
