package requests

import (
	"io"
	"net/http"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/endpoints/responsewriter"

	"github.com/kinproc/kinproc/server/internal/requests/epoch"
)

// bodyPatience is how long the gate counts a request that waits for its body. It is shorter than
// the first patience of the gate.
const bodyPatience = firstPatience / 4

// passage is a request of a client that has passed the gate. The gate counts it only while the
// server works on it: not while the request waits long for its body, and not once the response has
// begun. So a client that sends nothing, or reads nothing, holds no reset up. A request whose body
// comes after a reset fails, because it was authorized before.
type passage struct {
	gate  *Gate
	kind  traffic
	begun *epoch.Stamp

	mu         sync.Mutex
	inside     bool // whether the gate counts it
	ended      bool
	generation int
}

// leave ends the counting, until enter.
func (p *passage) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inside {
		p.gate.leave(p.kind, p.generation)
		p.inside = false
	}
}

// end ends the counting for good.
func (p *passage) end() {
	p.leave()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
}

// enter counts the request again if it is not counted, which may wait for the end of a reset.
func (p *passage) enter(r *http.Request) error {
	p.mu.Lock()
	done := p.inside || p.ended
	p.mu.Unlock()
	if done {
		return nil
	}
	generation, err := p.gate.enter(r.Context(), p.kind)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended || p.begun.Stale() {
		p.gate.leave(p.kind, generation)
		return errWasReset
	}
	p.inside, p.generation = true, generation
	return nil
}

// request returns the request with a body that the gate does not wait for.
func (p *passage) request(r *http.Request) *http.Request {
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = &awaitedBody{ReadCloser: r.Body, passage: p, request: r}
	}
	return r
}

type awaitedBody struct {
	io.ReadCloser
	passage *passage
	request *http.Request
}

// Read implements io.Reader.
func (b *awaitedBody) Read(to []byte) (int, error) {
	left := make(chan struct{})
	waiting := time.AfterFunc(bodyPatience, func() {
		defer close(left)
		b.passage.leave()
	})
	n, err := b.ReadCloser.Read(to)
	if !waiting.Stop() {
		<-left
	}
	if gone := b.passage.enter(b.request); gone != nil {
		return 0, gone
	}
	return n, err
}

// response returns a writer of which the gate does not wait for the reader.
func (p *passage) response(w http.ResponseWriter) http.ResponseWriter {
	return responsewriter.WrapForHTTP1Or2(&awaitedResponse{ResponseWriter: w, passage: p})
}

type awaitedResponse struct {
	http.ResponseWriter
	passage *passage
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (w *awaitedResponse) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Write implements http.ResponseWriter.
func (w *awaitedResponse) Write(data []byte) (int, error) {
	w.passage.end()
	return w.ResponseWriter.Write(data)
}
