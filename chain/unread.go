package chain

import (
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/endpoints/responsewriter"
)

// lingering is how long a client may keep sending a body that nobody reads.
const lingering = time.Second

// refuseUnread lets requests be refused without reading their bodies. Over HTTP/1, net/http reads
// up to 256 KiB of an unread body before it sends the response, so that the connection can be
// reused, and waits as long as the client takes to send it.
func refuseUnread(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 1 || r.ContentLength == 0 {
			handler.ServeHTTP(w, r)
			return
		}
		body := &watchedBody{ReadCloser: r.Body}
		unread := r.WithContext(r.Context()) // a copy
		unread.Body = body
		handler.ServeHTTP(responsewriter.WrapForHTTP1Or2(&refusal{ResponseWriter: w, body: body}), unread)
	})
}

// watchedBody is a body that records whether it was read.
type watchedBody struct {
	io.ReadCloser
	read atomic.Bool
}

func (b *watchedBody) Read(p []byte) (int, error) {
	b.read.Store(true)
	return b.ReadCloser.Read(p)
}

// refusal closes the connection after an error response if the body is unread.
type refusal struct {
	http.ResponseWriter
	body *watchedBody
}

func (r *refusal) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (r *refusal) WriteHeader(code int) {
	if code >= http.StatusBadRequest && !r.body.read.Load() {
		r.Header().Set("Connection", "close")
		// After the response, net/http keeps reading for a while. Otherwise a reset of the
		// connection could discard the response.
		_ = http.NewResponseController(r.ResponseWriter).SetReadDeadline(time.Now().Add(lingering))
	}
	r.ResponseWriter.WriteHeader(code)
}
