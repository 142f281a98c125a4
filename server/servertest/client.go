package servertest

import (
	"context"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/server/internal/install"
)

// helperTimeout limits everything that a helper does, an order of magnitude above what it takes on
// a loaded machine with the race detector.
const helperTimeout = time.Minute

// fieldManager is the name under which the helpers write.
const fieldManager = "servertest"

// clients are the clients with which a helper acts on an API.
type clients struct {
	*install.Client
	typed kubernetes.Interface
}

func newClients(c API) (*clients, error) {
	config := c.RESTConfig()
	config.WarningHandler = rest.NoWarnings{} // a helper prints nothing
	http, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	typed, err := kubernetes.NewForConfigAndClient(config, http)
	if err != nil {
		return nil, err
	}
	installer, err := install.NewForClient(config, http, fieldManager)
	return &clients{installer, typed}, err
}

// helperContext returns a context that ends with the test, or after helperTimeout.
func helperContext(t TB) (context.Context, context.CancelFunc) {
	ctx := context.Background()
	if of, ok := t.(interface{ Context() context.Context }); ok {
		ctx = of.Context()
	}
	return context.WithTimeout(ctx, helperTimeout)
}

// do calls act with clients for c. The test fails if act returns an error.
func do(t TB, c API, what string, act func(context.Context, *clients) error) {
	t.Helper()
	ctx, cancel := helperContext(t)
	defer cancel()
	k, err := newClients(c)
	if err == nil {
		err = act(ctx, k)
	}
	if err != nil {
		t.Fatalf("servertest: %s: %v", what, err)
	}
}

// deleteAtEnd deletes objects when the test ends, the last one first.
func deleteAtEnd(t TB, objects ...install.Object) {
	for _, o := range objects {
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), helperTimeout)
			defer cancel()
			if err := o.Delete(ctx); err != nil {
				t.Errorf("servertest: delete %s: %v", o, err)
			}
		})
	}
}

// deleteCreated deletes, when the test ends, those of the objects that did not exist before, unless
// the cluster ends anyway.
func deleteCreated(t TB, c API, objects []install.Object) {
	for _, o := range objects {
		if o.Created && !endsWithTests(c) {
			deleteAtEnd(t, o)
		}
	}
}
