package server

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"sync"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/server/internal/loopback"
	"github.com/kinproc/kinproc/server/internal/stopper"
)

// requests tracks the requests that are being served, over the network or in process.
type requests struct {
	options   *Options
	transport *loopback.Transport
	running   sync.WaitGroup
	gate      *gate
}

func newRequests(o *Options, s *stopper.Stopper) *requests {
	gate := newGate()
	r := &requests{options: o, transport: loopback.New(gate.streams), gate: gate}
	s.Push("requests", func() error {
		r.transport.Stop()
		r.running.Wait()
		return nil
	})
	return r
}

// counted wraps handler so that Stop waits for its requests and each request's context has a
// logger.
func (r *requests) counted(handler http.Handler) http.Handler {
	handler = r.gate.wrap(handler)
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		r.running.Add(1)
		defer r.running.Done()
		handler.ServeHTTP(w, request.WithContext(r.options.withLog(request.Context())))
	})
}

// self is the API server's in-process client of itself.
type self struct {
	transport *loopback.Transport
	config    *rest.Config
	client    kubernetes.Interface
}

func newSelf(transport *loopback.Transport, address net.Addr) (*self, error) {
	config := &rest.Config{
		Host:        "https://" + address.String(),
		Transport:   transport,
		BearerToken: uuid.NewString(),
		QPS:         -1,
		// becomes the field manager of the server's own writes
		UserAgent:     "kube-apiserver/" + KubernetesVersion + " (kinproc)",
		ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeProtobuf},
		// Warnings are for clients, not for the server itself.
		WarningHandler: rest.NoWarnings{},
	}
	client, err := kubernetes.NewForConfig(config)
	return &self{transport: transport, config: config, client: client}, err
}

// ask makes an in-process GET request. The status code is 0 if it fails.
func (s *self) ask(ctx context.Context, path, accept string) (code int, body []byte) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.config.Host+path, nil)
	if err != nil {
		return 0, nil
	}
	r.Header.Set("Authorization", "Bearer "+s.config.BearerToken)
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	answer, err := s.transport.RoundTrip(r)
	if err != nil {
		return 0, nil
	}
	defer answer.Body.Close()
	body, err = io.ReadAll(answer.Body)
	if err != nil {
		return 0, nil
	}
	return answer.StatusCode, body
}

// askJSON makes an in-process GET request, and reports whether it succeeded.
func (s *self) askJSON(ctx context.Context, path, accept string, into any) bool {
	code, body := s.ask(ctx, path, accept)
	return code == http.StatusOK && json.Unmarshal(body, into) == nil
}
