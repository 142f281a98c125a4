package connections_test

import (
	"context"
	"net"
	"net/http"
	"testing"

	"github.com/kinproc/kinproc/server/internal/requests/connections"
)

// A server with open connections shuts down in time, whether they are idle or their requests last.
func TestShutdownWithOpenConnections(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	tracked := connections.Track(l)
	begun := make(chan struct{})
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(begun)
		<-r.Context().Done()
	})}
	served := make(chan error, 1)
	go func() { served <- s.Serve(tracked) }()
	silent, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	answered := make(chan error, 1)
	go func() {
		answer, err := http.Get("http://" + l.Addr().String())
		if err == nil {
			err = answer.Body.Close()
		}
		answered <- err
	}()
	<-begun
	ctx, cancel := context.WithTimeout(t.Context(), connections.ShutdownTimeout)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	if err := <-answered; err == nil {
		t.Error("the request that lasts was answered")
	}
	<-served
	if err := tracked.CloseAll(); err != nil {
		t.Error(err)
	}
}
