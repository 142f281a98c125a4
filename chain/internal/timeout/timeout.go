// Package timeout answers requests whose handlers do not return in time.
package timeout

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/metrics"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
)

// idleTime is how long a worker waits for another request.
const idleTime = time.Second

// Workers are the goroutines of handlers. A goroutine that has answered a request takes the next
// one, because its stack is large enough then. Create them with [NewWorkers].
type Workers struct {
	alive      context.Context
	mark       func(context.Context) context.Context
	serializer runtime.NegotiatedSerializer

	work    chan *call // to an idle worker
	stopped chan struct{}
	stop    sync.Once
	running sync.WaitGroup
}

// NewWorkers returns no workers yet. When alive ends, because the storage cannot answer any more,
// requests are answered with its cause. Mark returns the context for a handler that nobody waits
// for then. The serializer is for errors.
func NewWorkers(
	alive context.Context, mark func(context.Context) context.Context,
	serializer runtime.NegotiatedSerializer,
) *Workers {
	return &Workers{
		alive: alive, mark: mark, serializer: serializer,
		work: make(chan *call), stopped: make(chan struct{}),
	}
}

// Stop ends the idle workers and waits for the others, unless the storage has failed: then they may
// never return.
func (w *Workers) Stop() {
	w.stop.Do(func() { close(w.stopped) })
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.running.Wait()
	}()
	select {
	case <-done:
	case <-w.alive.Done():
	}
}

// Filter lets workers handle the requests that are not long-running, each until the deadline of its
// context. Like kube-apiserver, it then answers 504, and what the handler writes later is an error
// for the handler.
func (w *Workers) Filter(
	handler http.Handler, longRunning genericapirequest.LongRunningRequestCheck,
) http.Handler {
	return http.HandlerFunc(func(response http.ResponseWriter, r *http.Request) {
		info, ok := genericapirequest.RequestInfoFrom(r.Context())
		if !ok {
			responsewriters.InternalError(response, r, errors.New("the request has no request info"))
			return
		}
		if longRunning(r, info) {
			handler.ServeHTTP(response, r)
			return
		}
		guarded := newWriter(response)
		c := &call{
			handler: handler, writer: responsewriter.WrapForHTTP1Or2(guarded),
			// The handler may change the header of its request even after the deadline.
			request: r.Clone(w.mark(r.Context())),
			done:    make(chan any, 1),
		}
		w.start(c)
		var err error
		select {
		case p := <-c.done:
			if p != nil {
				panic(p)
			}
			return
		case <-w.alive.Done():
			err = apierrors.NewInternalError(context.Cause(w.alive))
		case <-r.Context().Done():
			err = apierrors.NewTimeoutError("request did not complete within the allotted timeout", 0)
			metrics.RecordRequestTermination(r, info, metrics.APIServerComponent,
				http.StatusGatewayTimeout)
		}
		if !guarded.abandon() {
			panic(http.ErrAbortHandler) // it has sent a part of its response
		}
		responsewriters.ErrorNegotiated(err, w.serializer, schema.GroupVersion{}, response, r)
	})
}

// call is a request for a worker.
type call struct {
	handler http.Handler
	writer  http.ResponseWriter
	request *http.Request
	done    chan any // receives what the handler panicked with, or nil
}

func (w *Workers) start(c *call) {
	select {
	case w.work <- c:
	default:
		w.running.Go(func() { w.run(c) })
	}
}

// run is a worker, which begins with c.
func (w *Workers) run(c *call) {
	idle := time.NewTimer(idleTime)
	defer idle.Stop()
	for {
		c.handle()
		c = nil // so that an idle worker holds nothing
		idle.Reset(idleTime)
		select {
		case c = <-w.work:
		case <-idle.C:
			return
		case <-w.stopped:
			return
		}
	}
}

// handle calls the handler.
func (c *call) handle() {
	defer func() {
		panicked := recover()
		if panicked != nil && panicked != http.ErrAbortHandler {
			// The stack is lost when another goroutine panics again.
			panicked = fmt.Sprintf("%v\n%s", panicked, debug.Stack())
		}
		c.done <- panicked
	}()
	c.handler.ServeHTTP(c.writer, c.request)
}
