package server

import (
	"net"
	"net/http"
	"sync"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/server/internal/loopback"
)

// requests tracks the requests that are being served, over the network or in process.
type requests struct {
	options   *Options
	transport *loopback.Transport
	running   sync.WaitGroup
}

func newRequests(o *Options, u *undo) *requests {
	r := &requests{options: o, transport: &loopback.Transport{}}
	u.push("requests", func() error {
		r.transport.Stop()
		r.running.Wait()
		return nil
	})
	return r
}

// counted wraps handler so that Stop waits for its requests and each request's context has a
// logger.
func (r *requests) counted(handler http.Handler) http.Handler {
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
