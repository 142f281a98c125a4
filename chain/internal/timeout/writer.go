package timeout

import (
	"bufio"
	"maps"
	"net"
	"net/http"
	"sync"
)

// writer is the ResponseWriter of a handler that may be abandoned. Then nothing of the handler
// reaches the response any more.
type writer struct {
	response http.ResponseWriter
	header   http.Header // the handler's own until it begins the response

	mu        sync.Mutex
	begun     bool
	abandoned bool
}

func newWriter(response http.ResponseWriter) *writer {
	return &writer{response: response, header: response.Header().Clone()}
}

// abandon cuts the handler off. It returns false if the response has begun.
func (w *writer) abandon() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.abandoned = true
	return !w.begun
}

// Unwrap returns the response. Its writer has the methods of that writer.
func (w *writer) Unwrap() http.ResponseWriter { return w.response }

// Header implements http.ResponseWriter.
func (w *writer) Header() http.Header { return w.header }

// beginLocked must be called with mu held.
func (w *writer) beginLocked() {
	if !w.begun {
		w.begun = true
		maps.Copy(w.response.Header(), w.header)
	}
}

// WriteHeader implements http.ResponseWriter.
func (w *writer) WriteHeader(code int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.abandoned && !w.begun {
		w.beginLocked()
		w.response.WriteHeader(code)
	}
}

// Write implements http.ResponseWriter.
func (w *writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.abandoned {
		return 0, http.ErrHandlerTimeout
	}
	w.beginLocked()
	return w.response.Write(p)
}

// Flush implements http.Flusher.
func (w *writer) Flush() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.abandoned {
		w.beginLocked()
		w.response.(http.Flusher).Flush()
	}
}

// CloseNotify implements http.CloseNotifier.
func (w *writer) CloseNotify() <-chan bool {
	return w.response.(http.CloseNotifier).CloseNotify()
}

// Hijack implements http.Hijacker.
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.abandoned {
		return nil, nil, http.ErrHandlerTimeout
	}
	w.begun = true
	return w.response.(http.Hijacker).Hijack()
}
