package servertest

import (
	"time"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/install"
)

// InBubble is an option for [Run] in a bubble of [testing/synctest], where time passes as soon as
// everything waits:
//
//	func TestNightly(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			s := servertest.Run(t, servertest.InBubble, servertest.Workloads)
//			…
//			time.Sleep(30 * 24 * time.Hour)
//		})
//	}
//
// The control plane opens no socket, because no time passes while a goroutine waits for one. Its
// clients call it in process, and it reaches webhooks and extension API servers of the test in
// memory, at [Endpoint.Listen].
func InBubble(o *server.Options) { o.Network = server.NewNetwork() }

// lingering is longer than any goroutine stays that the libraries do not wait for. Such goroutines
// must have ended when the bubble ends.
const lingering = 10 * time.Minute

// inBubble reports whether a test is in a bubble of [testing/synctest], in which there is no
// deadline.
func inBubble(t TB) (in bool) {
	test, ok := t.(interface {
		Deadline() (deadline time.Time, ok bool)
	})
	if !ok {
		return false
	}
	defer func() { in = recover() != nil }()
	test.Deadline()
	return false
}

// networkOf returns the network on which a control plane is.
func networkOf(c []API) install.Network {
	for _, api := range c {
		if on, ok := api.(interface{ Network() *server.Network }); ok && on.Network() != nil {
			return on.Network()
		}
	}
	return &install.Sockets{}
}
