package apitest

import (
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest"
)

// TestAggregatorClusterIP reaches a server at its cluster IP, in a range that is routed. On Linux,
// every loopback address is.
func TestAggregatorClusterIP(t *testing.T) {
	t.Parallel()
	const ip = "127.20.0.7"
	e := startExtension(t, ip, "routed")
	for _, test := range []struct {
		name    string
		routing bool // to endpoints only
		want    string
		code    int
	}{
		{"by default", false, "Passed", http.StatusOK},
		{"to endpoints only", true, "FailedDiscoveryCheck", http.StatusServiceUnavailable},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := extend(t, servertest.Run(t, func(o *server.Options) {
				o.ServiceClusterIPRange, o.EnableAggregatorRouting = "127.20.0.0/24", test.routing
			}))
			c.service("routed",
				behind(corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, ClusterIP: ip}, e.port))
			c.await(c.register("routed", e.port, trusting(e)), test.want)
			c.awaitStatus("/apis/routed.example.com/v1/echoes/one", test.code)
		})
	}
}
