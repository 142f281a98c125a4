package apis

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/kinproc/kinproc/server/internal/etcdconn"
	"github.com/kinproc/kinproc/server/internal/requests/connections"
)

// Start serves requests. It calls first, which writes the first objects, while the servers are
// being finished, and returns when /readyz reports that the server is ready. The context reading
// bounds the first reads of stored objects. Start calls phase when a phase of the start begins.
func (a *APIs) Start(
	ctx, reading context.Context, first func(context.Context) error, phase func(name string),
) error {
	prepare := a.Chain.Prepare() // meanwhile
	phase("first-objects")
	err := first(ctx)
	if err == nil {
		phase("informers")
		generic := a.Chain.Aggregator.GenericAPIServer
		generic.ShutdownTimeout = connections.ShutdownTimeout
		generic.Handler.FullHandlerChain = a.config.Requests.Serve(generic.Handler.FullHandlerChain,
			a.Chain.Aggregator.Proxies, a.forget)
		err = a.Chain.StartInformers(reading, a.stopper.Context())
	}
	prepared, failed := prepare()
	if err := errors.Join(failed, err); err != nil {
		return err
	}
	if err := a.Plugins.Start(); err != nil {
		return fmt.Errorf("admission: %w", err)
	}
	phase("hooks")
	a.stopper.Go(func() {
		if err := prepared.Run(a.stopper.Context()); err != nil {
			a.stopper.Fail(fmt.Errorf("run the chain: %w", err))
		}
	})
	if err := a.waitReady(ctx); err != nil {
		return err
	}
	close(a.ready)
	return nil
}

// Handle serves paths that no API has. It must be called before Start.
func (a *APIs) Handle(handlers map[string]http.Handler) {
	for path, handler := range handlers {
		a.Chain.Aggregator.GenericAPIServer.Handler.NonGoRestfulMux.UnlistedHandle(path, handler)
	}
}

// forget lets go of the chain when no request is left. For 90 seconds, a timer of Go's HTTP/2
// server refers to the server of a connection that was closed while it had streams.
func (a *APIs) forget() {
	a.Chain.Stop()
	*a.Chain.Aggregator.GenericAPIServer.Handler = genericapiserver.APIServerHandler{
		FullHandlerChain: http.NotFoundHandler(),
	}
}

// waitReady waits until /readyz reports that the server is ready.
func (a *APIs) waitReady(ctx context.Context) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	says := ""
	undecodable, giveUp := a.config.Storage.Undecodable(), (<-chan time.Time)(nil)
	for {
		ready, answer := a.askReady(ctx)
		if ready {
			return nil
		}
		if answer != "" {
			says = answer
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not ready: %w; /readyz says:\n%s", context.Cause(ctx), says)
		case <-undecodable:
			undecodable, giveUp = nil, time.After(etcdconn.DamageGrace)
		case <-giveUp:
			return etcdconn.ErrDamage
		case <-tick.C:
		}
	}
}

// askReady requests /readyz in process. The handler panics if ctx ends while it runs; the transport
// recovers from the panic.
func (a *APIs) askReady(ctx context.Context) (ready bool, says string) {
	body, err := a.config.Requests.Client.Discovery().RESTClient().Get().AbsPath("/readyz").
		Param("verbose", "").DoRaw(ctx)
	return err == nil, string(body)
}
