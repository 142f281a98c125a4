package tracer

import (
	"context"
	"crypto/tls"
	"net/http/httptrace"
	"sync"
	"time"

	"github.com/kinproc/kinproc/chain/trace"
)

// withProxy returns a context for requests to other servers, which are extension API servers and
// webhooks. The trace shows how they were reached and how long they took to answer. Validating
// webhooks are called at the same time, which may mix up the times of their connections.
func withProxy(ctx context.Context, t *Trace) context.Context {
	var mu sync.Mutex
	var asked, shaking, got time.Time
	since := func(at *time.Time) time.Time {
		mu.Lock()
		defer mu.Unlock()
		return *at
	}
	set := func(at *time.Time) {
		mu.Lock()
		defer mu.Unlock()
		*at = time.Now()
	}
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { set(&asked) },
		GotConn: func(info httptrace.GotConnInfo) {
			decision := "opened"
			if info.Reused {
				decision = "reused"
			}
			t.Add(trace.Step{
				At: "connection", Decision: decision, Reason: info.Conn.RemoteAddr().String(),
			}, since(&asked), time.Now())
			set(&got)
		},
		TLSHandshakeStart: func() { set(&shaking) },
		TLSHandshakeDone: func(state tls.ConnectionState, err error) {
			step := trace.Step{At: "TLS", Decision: "refused"}
			if err != nil {
				step.Reason = err.Error()
			} else {
				step.Decision, step.Reason = tls.VersionName(state.Version), state.ServerName
			}
			t.Add(step, since(&shaking), time.Now())
		},
		GotFirstResponseByte: func() {
			t.Add(trace.Step{At: "response", Decision: "begun"}, since(&got), time.Now())
		},
	})
}
