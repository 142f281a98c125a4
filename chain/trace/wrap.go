package trace

import (
	"encoding/json"
	"io"
	"net/http"
	"sync"

	"k8s.io/client-go/rest"
)

// Traced is a request with its trace.
type Traced struct {
	Request *http.Request
	// StatusCode is that of the response.
	StatusCode int
	// Steps is nil if the server sent no trace: because the user may not get [Path], because the
	// client closed the response's body before its end, or because the server is not kinproc.
	Steps []Step
}

// Wrap makes the clients of a configuration ask for traces. It calls report for each request that
// is answered, when the client has read or closed the body of the response; for a watch, when the
// watch ends. Report may be called concurrently. A request that has the [Header] already keeps its
// value.
func Wrap(config *rest.Config, report func(Traced)) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return wrapped{next, report}
	})
}

type wrapped struct {
	next   http.RoundTripper
	report func(Traced)
}

// RoundTrip implements http.RoundTripper.
func (w wrapped) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	if r.Header.Get(Header) == "" {
		r.Header.Set(Header, "1")
	}
	response, err := w.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	response.Body = &tracedBody{ReadCloser: response.Body, ended: sync.OnceFunc(func() {
		traced := Traced{Request: r, StatusCode: response.StatusCode}
		if encoded := response.Trailer.Get(Header); encoded != "" {
			_ = json.Unmarshal([]byte(encoded), &traced.Steps) // not a trace, so none
		}
		w.report(traced)
	})}
	return response, nil
}

// tracedBody calls ended when it has been read or closed.
type tracedBody struct {
	io.ReadCloser
	ended func()
}

func (b *tracedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.ended()
	}
	return n, err
}

func (b *tracedBody) Close() error {
	err := b.ReadCloser.Close()
	b.ended()
	return err
}
