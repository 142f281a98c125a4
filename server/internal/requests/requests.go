// Package requests has what happens to a request before the chain of API servers sees it, and
// after: where it comes from, what sort of request it is, whether it may pass, and when it has
// ended.
package requests

import (
	"context"
	"crypto/x509"
	"net/http"
	"sync"

	"github.com/go-logr/logr"
	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/kinproc/kinproc/server/internal/requests/connections"
	"github.com/kinproc/kinproc/server/internal/requests/loopback"
	"github.com/kinproc/kinproc/server/internal/stopper"
)

// Config says where requests come from.
type Config struct {
	Listener *connections.Listener
	// UserAgent is that of the server's own requests. It becomes the field manager of its writes.
	UserAgent string
	// Log is the logger in the contexts of requests.
	Log logr.Logger
}

// Requests are those that a control plane gets, over the network or in process.
type Requests struct {
	// Gate holds requests while the control plane is reset.
	Gate *Gate
	// Config and Client are for requests that the server makes to itself, in process.
	Config *rest.Config
	Client kubernetes.Interface

	transport *loopback.Transport
	logging   context.Context // with the logger
	running   sync.WaitGroup
	ended     func() // nil before Serve
}

// Open prepares for requests. They fail until [Requests.Serve] has been called. The stopper ends
// the connections, and then waits for the requests.
func Open(c Config, s *stopper.Stopper) (*Requests, error) {
	r := &Requests{
		Gate:      newGate(),
		transport: loopback.New(),
		logging:   klog.NewContext(context.Background(), c.Log),
	}
	r.Config = &rest.Config{
		Host:          "https://" + c.Listener.Addr().String(),
		Transport:     r.transport,
		BearerToken:   uuid.NewString(),
		QPS:           -1,
		UserAgent:     c.UserAgent,
		ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeProtobuf},
		// Warnings are for clients, not for the server itself.
		WarningHandler: rest.NoWarnings{},
	}
	var err error
	if r.Client, err = kubernetes.NewForConfig(r.Config); err != nil {
		return nil, err
	}
	s.Push("requests", func() error {
		r.transport.Stop()
		r.running.Wait()
		if r.ended != nil {
			r.ended()
		}
		return nil
	})
	s.Push("connections", c.Listener.CloseAll)
	return r, nil
}

// Serve returns the handler of all requests, and begins to serve those in process. It passes them
// on to next. The function proxied reports whether an extension API server answers the requests for
// a path, and ended is called when there can be no more requests.
func (r *Requests) Serve(
	next http.Handler, proxied func(path string) bool, ended func(),
) http.Handler {
	r.ended = ended
	h := &handler{r, next, proxied}
	r.transport.Serve(h)
	return h
}

// As returns a round tripper for requests in process of a client that has presented a certificate.
func (r *Requests) As(certificate *x509.Certificate) http.RoundTripper {
	return r.transport.As(certificate)
}

// handler is the handler of all requests.
type handler struct {
	*Requests
	next    http.Handler
	proxied func(path string) bool
}

// ServeHTTP implements http.Handler. Each request's context has a logger and its facts.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.running.Add(1)
	defer h.running.Done()
	facts := Of(r.Context())
	if facts == nil {
		r, facts = h.classified(r)
	}
	h.Gate.serve(w, r, facts, h.next)
}

// Prepare implements loopback.Handler.
func (h *handler) Prepare(r *http.Request) (prepared *http.Request, streams bool) {
	r, facts := h.classified(r)
	return r, facts.streams()
}

func (h *handler) classified(r *http.Request) (*http.Request, *Facts) {
	c := &requestContext{Context: r.Context(), logging: h.logging, facts: classify(r, h.proxied)}
	return r.WithContext(c), &c.facts
}

// requestContext is the context of a request. It has all values of requests at once, because every
// request has one.
type requestContext struct {
	context.Context
	logging context.Context
	facts   Facts
}

// Value implements context.Context.
func (c *requestContext) Value(key any) any {
	if key == (factsKey{}) {
		return &c.facts
	}
	if v := c.logging.Value(key); v != nil {
		return v
	}
	return c.Context.Value(key)
}
