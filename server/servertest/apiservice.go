package servertest

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// APIService registers a group version of an extension API server that the test process runs at an
// endpoint of [NewEndpoint], and waits until it is available and in discovery:
//
//	e := servertest.NewEndpoint(t)
//	go serve(e.Addr(), e.CertDir)
//	servertest.APIService(t, s, e, schema.GroupVersion{Group: "example.com", Version: "v1"})
//
// It waits for the server to listen before it registers it. The aggregator trusts e.CABundle and
// reaches the server as a service of the namespace "default". The registration is deleted when the
// test ends.
//
// An extension API server that delegates authentication and authorization needs a user with some
// permissions and a kubeconfig: see [User] and [Kubeconfig].
func APIService(t TB, c API, e *Endpoint, version schema.GroupVersion) {
	t.Helper()
	what := "register " + version.String()
	do(t, c, what, func(ctx context.Context, k *clients) error {
		created, err := k.APIService(ctx, e.installed(), version)
		deleteAtEnd(t, created...)
		return err
	})
}
