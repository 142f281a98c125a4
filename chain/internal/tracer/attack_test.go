package tracer_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"github.com/kinproc/kinproc/chain/internal/tracer"
	"github.com/kinproc/kinproc/chain/trace"
)

// serve serves requests with traces, and their followers.
func serve(t *testing.T, handle func(*tracer.Trace)) *httptest.Server {
	t.Helper()
	followers := tracer.NewFollowers(serializer.NewCodecFactory(runtime.NewScheme()))
	mux := http.NewServeMux()
	mux.Handle(trace.FollowPath, followers)
	mux.Handle("/", followers.WithTrace(http.HandlerFunc(
		func(_ http.ResponseWriter, r *http.Request) { handle(tracer.From(r.Context())) })))
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	t.Cleanup(followers.Stop)
	return s
}

func get(t *testing.T, url string, header http.Header) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = header
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	return response
}

// Requests with large objects do not pile up for clients that do not read. The buffers of a
// connection hold a few MiB in addition.
func TestAttackFollowersThatDoNotRead(t *testing.T) {
	t.Parallel()
	const clients, requests, most = 3, 100, 40 << 20
	object := json.RawMessage(`"` + string(bytes.Repeat([]byte("x"), 1<<20)) + `"`)
	followed := false
	s := serve(t, func(own *tracer.Trace) {
		followed = own != nil
		own.Add(trace.Step{At: "validation", Object: object}, time.Now(), time.Now())
	})
	var streams []*http.Response
	for range clients {
		streams = append(streams, get(t, s.URL+trace.FollowPath+"?objects=true", nil))
	}
	for n := 0; n < requests; {
		if get(t, s.URL+"/", nil); followed {
			n++
		}
	}
	received := 0
	for _, stream := range streams {
		for decoder, r := json.NewDecoder(stream.Body), (trace.Request{}); r.Path != "/end"; {
			get(t, s.URL+"/end", nil)
			r = trace.Request{}
			if err := decoder.Decode(&r); err != nil {
				t.Fatal(err)
			}
			for _, step := range r.Steps {
				received += len(step.Object)
			}
		}
		stream.Body.Close()
	}
	if received > most {
		t.Errorf("%d bytes waited for clients that did not read, want at most %d", received, most)
	}
}

// A trace that its user may not see ends before it costs anything, unless somebody follows it.
func TestAttackTraceThatMayNotBeSeen(t *testing.T) {
	t.Parallel()
	for _, may := range []bool{false, true} {
		recorded := false
		followers := tracer.NewFollowers(serializer.NewCodecFactory(runtime.NewScheme()))
		s := httptest.NewServer(followers.WithTrace(http.HandlerFunc(
			func(_ http.ResponseWriter, r *http.Request) {
				own := tracer.From(r.Context())
				own.Show(may)
				recorded = tracer.From(r.Context()) != nil
			})))
		defer s.Close()
		get(t, s.URL, http.Header{trace.Header: {trace.Objects}})
		if recorded != may {
			t.Errorf("may see it: %v; it is recorded: %v", may, recorded)
		}
	}
}
