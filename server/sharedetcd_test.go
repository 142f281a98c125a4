package server

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/kinproc/kinproc/embed"
)

// TestControlPlanesOfOneEtcdAtOnce starts control planes of one etcd at the same time, and stops
// them at the same time. Each of them writes the objects that all of them keep.
func TestControlPlanesOfOneEtcdAtOnce(t *testing.T) {
	t.Parallel()
	e, err := embed.Start(t.Context(), embed.Options{Ephemeral: true, ListenClient: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	keys := t.TempDir()
	servers := make([]*Server, 4)
	for i := range servers {
		servers[i], err = New(Options{
			EtcdServers:      e.Endpoints(),
			PKIDir:           keys,
			AdvertiseAddress: fmt.Sprintf("10.9.0.%d", i+1),
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	each := func(do func(*Server) error) {
		var running sync.WaitGroup
		defer running.Wait()
		for i, s := range servers {
			running.Go(func() {
				if err := do(s); err != nil {
					t.Errorf("control plane %d: %v", i, err)
				}
			})
		}
	}
	each(func(s *Server) error { return s.Start(t.Context()) })
	each(func(s *Server) error { return s.Stop(context.WithoutCancel(t.Context())) })
}
