package timeout_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	clientscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/kinproc/kinproc/chain/internal/timeout"
)

func unmarked(ctx context.Context) context.Context { return ctx }

// filter returns a handler behind the filter. Requests for /watch are long-running.
func filter(
	t *testing.T, alive context.Context, limit time.Duration, handler http.HandlerFunc,
) http.Handler {
	t.Helper()
	workers := timeout.NewWorkers(alive, unmarked, clientscheme.Codecs)
	t.Cleanup(workers.Stop)
	filter := workers.Filter(handler, func(r *http.Request, _ *genericapirequest.RequestInfo) bool {
		return r.URL.Path == "/watch"
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), limit)
		defer cancel()
		ctx = genericapirequest.WithRequestInfo(ctx, &genericapirequest.RequestInfo{Verb: "get"})
		filter.ServeHTTP(w, r.WithContext(ctx))
	})
}

// serve serves a handler behind the filter.
func serve(
	t *testing.T, alive context.Context, limit time.Duration, handler http.HandlerFunc,
) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(filter(t, alive, limit, handler))
	t.Cleanup(s.Close)
	return s
}

func get(t *testing.T, url string) (code int, header http.Header, body string) {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	read, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, response.Header, string(read)
}

func TestInTime(t *testing.T) {
	t.Parallel()
	s := serve(t, t.Context(), time.Minute, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Path", r.URL.Path)
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, "short")
	})
	for _, path := range []string{"/get", "/watch", "/get"} {
		code, header, body := get(t, s.URL+path)
		if code != http.StatusTeapot || header.Get("X-Path") != path || body != "short" {
			t.Errorf("%s: %d %v %q", path, code, header, body)
		}
	}
}

// A handler that does not return is answered for, and can no longer change the response.
func TestTooLate(t *testing.T) {
	t.Parallel()
	release, wrote := make(chan struct{}), make(chan error, 1)
	s := serve(t, t.Context(), time.Millisecond, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Late", "yes")
		<-release
		w.Header().Set("X-Later", "yes")
		w.WriteHeader(http.StatusOK)
		_, err := io.WriteString(w, "late")
		wrote <- err
	})
	code, header, body := get(t, s.URL)
	close(release)
	if code != http.StatusGatewayTimeout || header.Get("X-Late") != "" ||
		!strings.Contains(body, `"reason":"Timeout"`) {
		t.Errorf("got %d %v %s", code, header, body)
	}
	if err := <-wrote; !errors.Is(err, http.ErrHandlerTimeout) {
		t.Errorf("the handler's write returned %v", err)
	}
}

// Part of a response cannot become another one, so the connection is aborted.
func TestTooLateForTheRest(t *testing.T) {
	t.Parallel()
	// The time is over when the handler waits, not before.
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		handler := filter(t, t.Context(), time.Minute, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "a part")
			w.(http.Flusher).Flush()
			<-release
		})
		defer close(release)
		w := httptest.NewRecorder()
		defer func() {
			if r := recover(); r != http.ErrAbortHandler || w.Body.String() != "a part" {
				t.Errorf("the response ended with %v, after %q", r, w.Body)
			}
		}()
		handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
	})
}

// When the storage has failed, nobody waits for handlers that may never return.
func TestStorageFails(t *testing.T) {
	t.Parallel()
	alive, end := context.WithCancelCause(t.Context())
	release := make(chan struct{})
	defer close(release)
	s := serve(t, alive, time.Minute, func(http.ResponseWriter, *http.Request) {
		end(errors.New("the disk is full"))
		<-release
	})
	code, _, body := get(t, s.URL)
	if code != http.StatusInternalServerError || !strings.Contains(body, "the disk is full") {
		t.Errorf("got %d %s", code, body)
	}
}

func TestPanic(t *testing.T) {
	t.Parallel()
	workers := timeout.NewWorkers(t.Context(), unmarked, clientscheme.Codecs)
	defer workers.Stop()
	for _, reason := range []any{http.ErrAbortHandler, "broken"} {
		filter := workers.Filter(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			panic(reason)
		}), func(*http.Request, *genericapirequest.RequestInfo) bool { return false })
		r := httptest.NewRequestWithContext(genericapirequest.WithRequestInfo(t.Context(),
			&genericapirequest.RequestInfo{}), http.MethodGet, "/", nil)
		func() {
			defer func() {
				p := recover()
				text, _ := p.(string)
				if p != reason && !strings.HasPrefix(text, "broken\ngoroutine ") {
					t.Errorf("panicked with %v, want %v", p, reason)
				}
			}()
			filter.ServeHTTP(httptest.NewRecorder(), r)
			t.Errorf("%v was swallowed", reason)
		}()
	}
}
