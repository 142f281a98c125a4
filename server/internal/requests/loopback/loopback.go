// Package loopback lets clients in this process call an HTTP handler without network, TLS or HTTP
// framing.
//
// The API server is a client of itself: informers, admission and controllers call it.
// kube-apiserver does that over TLS on localhost. Here a request is a function call. Lists and
// long-running requests such as watches stream: each is a goroutine, and the response body is a
// buffer between that one and the client's.
package loopback

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/kinproc/kinproc/server/internal/requests/epoch"
)

// bufferLimit is the number of bytes of a response that a handler may write ahead of its reader.
const bufferLimit = 1 << 20

// Transport is an http.RoundTripper that calls a handler. Requests fail until [Transport.Serve] has
// set the handler. Create one with [New].
type Transport struct {
	handler atomic.Pointer[Handler]

	mu      sync.Mutex
	stopped bool
	cancels map[*call]struct{}
	running sync.WaitGroup
}

// Handler is what a transport calls. It must return when the context of a request ends.
type Handler interface {
	http.Handler
	// Prepare returns the request as ServeHTTP is to get it, and whether the response may be large,
	// or last. If not, the transport calls ServeHTTP in the goroutine of the client.
	Prepare(r *http.Request) (prepared *http.Request, streams bool)
}

// New returns a transport.
func New() *Transport { return &Transport{cancels: map[*call]struct{}{}} }

// Serve sets the handler for subsequent requests.
func (t *Transport) Serve(handler Handler) { t.handler.Store(&handler) }

// Stop rejects further requests, cancels the running ones and waits for their handlers. It forgets
// the handler.
func (t *Transport) Stop() {
	t.mu.Lock()
	t.stopped = true
	for c := range t.cancels {
		c.cancel()
	}
	t.mu.Unlock()
	t.running.Wait()
	t.handler.Store(nil)
}

type ownKey struct{}

// IsOwn reports whether ctx is that of a request by which the server calls itself.
func IsOwn(ctx context.Context) bool { return ctx.Value(ownKey{}) != nil }

type callerKey struct{}

// Caller returns a context for the requests of a part of the server, whose name is added to their
// user agent, as kube-controller-manager adds the names of its controllers.
func Caller(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, callerKey{}, name)
}

// As returns a round tripper that calls the handler as a client that has presented a certificate
// over TLS.
func (t *Transport) As(certificate *x509.Certificate) http.RoundTripper {
	state := &tls.ConnectionState{
		Version:            tls.VersionTLS13,
		HandshakeComplete:  true,
		NegotiatedProtocol: "h2",
		PeerCertificates:   []*x509.Certificate{certificate},
	}
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		return t.roundTrip(req, state)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	return t.roundTrip(req, nil)
}

func (t *Transport) roundTrip(
	req *http.Request, state *tls.ConnectionState,
) (*http.Response, error) {
	handler := t.handler.Load()
	c, err := t.begin(req, state)
	if err != nil {
		return nil, err
	}
	if handler == nil {
		t.end(c)
		c.cancel()
		return nil, errors.New("loopback: the server is not serving yet")
	}
	var streams bool
	if c.request, streams = (*handler).Prepare(c.request); streams {
		return t.stream(*handler, req, c)
	}
	return t.answer(*handler, req, c)
}

// call is a running request.
type call struct {
	request *http.Request // as the handler gets it
	cancel  context.CancelFunc
}

// begin returns the request for the handler, whose context [Transport.Stop] ends too.
func (t *Transport) begin(req *http.Request, state *tls.ConnectionState) (*call, error) {
	// The server calls itself with its own identity. The context of a request that it is answering
	// must not pass on the user or the audiences, only the cancellation and the deadline.
	var ctx context.Context
	var end context.CancelFunc
	if at, ok := req.Context().Deadline(); ok {
		ctx, end = context.WithDeadline(context.Background(), at) // etcd gets it too
	} else {
		ctx, end = context.WithCancel(context.Background())
	}
	if state == nil {
		ctx = epoch.Passed(context.WithValue(ctx, ownKey{}, true), epoch.Of(req.Context()))
	}
	forget := context.AfterFunc(req.Context(), end)
	c := &call{cancel: func() { forget(); end() }}
	r := req.Clone(ctx)
	r.RequestURI = req.URL.RequestURI()
	r.RemoteAddr = "127.0.0.1:0"
	r.TLS = state
	r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/2.0", 2, 0
	if r.Host == "" {
		r.Host = req.URL.Host
	}
	if name, ok := req.Context().Value(callerKey{}).(string); ok && state == nil {
		r.Header.Set("User-Agent", r.UserAgent()+"/"+name)
	}
	if r.Body == nil {
		r.Body = http.NoBody
	}
	c.request = r
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped {
		c.cancel()
		return nil, errors.New("loopback: the server has stopped")
	}
	t.cancels[c] = struct{}{}
	t.running.Add(1)
	return c, nil
}

func (t *Transport) end(c *call) {
	t.mu.Lock()
	delete(t.cancels, c)
	t.mu.Unlock()
	t.running.Done()
}

// serve calls the handler. As in net/http, a panic ends the response, not the process. A handler
// that aborts is to the client what it is over a network.
func (c *call) serve(handler http.Handler, w http.ResponseWriter) (err error) {
	defer c.request.Body.Close()
	defer func() {
		switch p := recover(); p {
		case nil:
		case http.ErrAbortHandler:
			err = fmt.Errorf("loopback: the handler aborted: %w", syscall.ECONNRESET)
		default:
			err = fmt.Errorf("loopback: the handler panicked: %v", p)
		}
	}()
	handler.ServeHTTP(w, c.request)
	return nil
}

// answer returns the response when it is complete.
func (t *Transport) answer(
	handler http.Handler, req *http.Request, c *call,
) (*http.Response, error) {
	defer t.end(c)
	defer c.cancel()
	w := &recorder{header: http.Header{}, ctx: c.request.Context()}
	if err := c.serve(handler, w); err != nil {
		return nil, err
	}
	if err := c.request.Context().Err(); err != nil {
		return nil, err
	}
	w.WriteHeader(http.StatusOK) // unless the handler has
	trailer := http.Header{}
	for _, name := range w.sent["Trailer"] {
		trailer[name] = w.header[name]
	}
	return response(req, w.code, w.sent, &w.body, trailer), nil
}

func response(
	req *http.Request, code int, header http.Header, body io.ReadCloser, trailer http.Header,
) *http.Response {
	return &http.Response{
		Status:        strconv.Itoa(code) + " " + http.StatusText(code),
		StatusCode:    code,
		Proto:         "HTTP/2.0",
		ProtoMajor:    2,
		Header:        header,
		Body:          body,
		Trailer:       trailer,
		ContentLength: -1,
		Request:       req,
	}
}

// recorder is the http.ResponseWriter of a handler that runs in the goroutine of its client.
type recorder struct {
	ctx    context.Context
	header http.Header
	code   int
	sent   http.Header // the header at the time of WriteHeader
	body   content
}

// content is the body of a complete response.
type content struct{ bytes.Buffer }

// Close implements io.Closer.
func (*content) Close() error { return nil }

// Header implements http.ResponseWriter.
func (w *recorder) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *recorder) WriteHeader(code int) {
	if w.code == 0 && code >= http.StatusOK {
		w.code, w.sent = code, maps.Clone(w.header)
	}
}

// Write implements http.ResponseWriter.
func (w *recorder) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(p)
}

// Flush implements http.Flusher.
func (w *recorder) Flush() { w.WriteHeader(http.StatusOK) }

// CloseNotify implements http.CloseNotifier, which the response writers of k8s.io/apiserver
// require.
func (w *recorder) CloseNotify() <-chan bool { return closeNotify(w.ctx) }

func closeNotify(ctx context.Context) <-chan bool {
	gone := make(chan bool, 1)
	context.AfterFunc(ctx, func() { gone <- true })
	return gone
}

// stream returns the response when its header is known.
func (t *Transport) stream(
	handler http.Handler, req *http.Request, c *call,
) (*http.Response, error) {
	ctx := c.request.Context()
	x := &exchange{
		header: http.Header{}, ctx: ctx,
		wroteHeader: make(chan struct{}), aborted: make(chan struct{}),
	}
	x.change.L = &x.mu
	go func() {
		defer t.end(c)
		err := io.EOF
		if failed := c.serve(handler, x); failed != nil {
			err = failed
		}
		x.finish(err)
	}()
	// The client's own cancellation also ends its reads of the body.
	stop := context.AfterFunc(req.Context(), func() { x.finish(req.Context().Err()) })
	interrupt := context.AfterFunc(ctx, x.interrupt)
	select {
	case <-x.wroteHeader:
	case <-x.aborted:
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	left := func() { stop(); interrupt(); c.cancel() }
	if x.code == 0 {
		left()
		return nil, x.err
	}
	trailer := http.Header{}
	return response(req, x.code, x.sent, &body{x: x, left: left, trailer: trailer}, trailer), nil
}

// exchange is one request and its response. It is the http.ResponseWriter of the handler and the
// source of the body that the client reads.
type exchange struct {
	header      http.Header
	ctx         context.Context
	wroteHeader chan struct{}
	aborted     chan struct{} // closed when the handler's side ends without a header

	mu     sync.Mutex
	change sync.Cond // signalled when anything below changes
	code   int
	sent   http.Header // the header at the time of WriteHeader
	buffer bytes.Buffer
	err    error // why the handler's side ended; io.EOF if the response is complete
	closed bool  // the client has closed the body
	// The server stops: the handler is to return, and does not wait for its reader any more.
	interrupted bool
	cut         bool // so what the handler wrote is lost
}

// Header implements http.ResponseWriter.
func (x *exchange) Header() http.Header { return x.header }

// WriteHeader implements http.ResponseWriter.
func (x *exchange) WriteHeader(code int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.writeHeaderLocked(code)
}

// writeHeaderLocked must be called with mu held.
func (x *exchange) writeHeaderLocked(code int) {
	if x.code != 0 || code < 200 {
		return
	}
	x.code = code
	x.sent = x.header.Clone()
	close(x.wroteHeader)
}

// Write implements http.ResponseWriter.
func (x *exchange) Write(p []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.writeHeaderLocked(http.StatusOK)
	for x.buffer.Len() >= bufferLimit && !x.closed && !x.interrupted && x.err == nil {
		x.change.Wait()
	}
	switch {
	case x.closed:
		return 0, io.ErrClosedPipe
	case x.err != nil:
		return 0, x.err
	case x.buffer.Len() >= bufferLimit:
		x.cut = true
		return 0, x.ctx.Err()
	}
	x.buffer.Write(p)
	x.change.Broadcast()
	return len(p), nil
}

// Flush implements http.Flusher. It only sends the header, because written data is never held back.
func (x *exchange) Flush() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.writeHeaderLocked(http.StatusOK)
}

// CloseNotify implements http.CloseNotifier, which the response writers of k8s.io/apiserver
// require.
func (x *exchange) CloseNotify() <-chan bool {
	return closeNotify(x.ctx)
}

// finish ends the handler's side, unless it has already ended.
func (x *exchange) finish(err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.err != nil {
		return
	}
	if err == io.EOF {
		x.writeHeaderLocked(http.StatusOK)
		if x.cut {
			err = io.ErrUnexpectedEOF
		}
	}
	x.err = err
	if x.code == 0 {
		close(x.aborted)
	}
	x.change.Broadcast()
}

// interrupt asks the handler's side to end. It may complete a response that it has begun to
// send, so that the client of a stream sees the stream end, as over a network.
func (x *exchange) interrupt() {
	x.mu.Lock()
	begun := x.code != 0
	x.interrupted = true
	x.change.Broadcast()
	x.mu.Unlock()
	if !begun {
		x.finish(x.ctx.Err())
	}
}

// body is the body of a response. At its end, it sets the trailer.
type body struct {
	x       *exchange
	left    func() // tells the handler that the client has left
	trailer http.Header
}

func (b *body) Read(p []byte) (int, error) {
	x := b.x
	x.mu.Lock()
	defer x.mu.Unlock()
	for x.buffer.Len() == 0 && x.err == nil && !x.closed {
		x.change.Wait()
	}
	if x.closed {
		return 0, errors.New("loopback: read after the body was closed")
	}
	if x.buffer.Len() == 0 {
		if x.err == io.EOF {
			for _, name := range x.sent["Trailer"] {
				b.trailer[name] = x.header[name]
			}
		}
		return 0, x.err
	}
	n, _ := x.buffer.Read(p)
	x.change.Broadcast()
	return n, nil
}

// Close tells the handler that the client has stopped reading.
func (b *body) Close() error {
	b.x.mu.Lock()
	b.x.closed = true
	b.x.change.Broadcast()
	b.x.mu.Unlock()
	b.left()
	return nil
}
