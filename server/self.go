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

// requests are those that are served, over the network or in process.
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

// counted lets Stop wait for the requests that handler serves, and gives them a logger.
func (r *requests) counted(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		r.running.Add(1)
		defer r.running.Done()
		handler.ServeHTTP(w, request.WithContext(r.options.withLog(request.Context())))
	})
}

// self is the API server as a client of itself, in process.
type self struct {
	transport *loopback.Transport
	config    *rest.Config
	client    kubernetes.Interface
}

func newSelf(transport *loopback.Transport, address net.Addr) (*self, error) {
	config := &rest.Config{
		Host:          "https://" + address.String(),
		Transport:     transport,
		BearerToken:   uuid.NewString(),
		QPS:           -1,
		UserAgent:     "kube-apiserver/" + KubernetesVersion + " (kinproc)", // the field manager of what the server itself writes
		ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeProtobuf},
		// The server does not warn itself of what it serves.
		WarningHandler: rest.NoWarnings{},
	}
	client, err := kubernetes.NewForConfig(config)
	return &self{transport: transport, config: config, client: client}, err
}
