package servertest

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/util/retry"
)

// helperTimeout limits everything that a helper does, an order of magnitude above what it takes on
// a loaded machine with the race detector.
const helperTimeout = time.Minute

// fieldManager is the name under which the helpers write.
const fieldManager = "servertest"

// clients are the clients with which a helper acts on an API.
type clients struct {
	dynamic   dynamic.Interface
	typed     kubernetes.Interface
	discovery discovery.DiscoveryInterfaceWithContext
	mapper    *restmapper.DeferredDiscoveryRESTMapper
}

func newClients(c API) (*clients, error) {
	config := c.RESTConfig()
	config.WarningHandler = rest.NoWarnings{} // a helper prints nothing
	http, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	dynamicClient, err := dynamic.NewForConfigAndClient(config, http)
	if err != nil {
		return nil, err
	}
	typed, err := kubernetes.NewForConfigAndClient(config, http)
	if err != nil {
		return nil, err
	}
	served, err := discovery.NewDiscoveryClientForConfigAndClient(config, http)
	if err != nil {
		return nil, err
	}
	return &clients{
		dynamic: dynamicClient, typed: typed, discovery: served,
		mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(served)),
	}, nil
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

// atEnd calls act when the test ends. What act does not find has been deleted already.
func atEnd(t TB, c API, what string, act func(context.Context, *clients) error) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), helperTimeout)
		defer cancel()
		k, err := newClients(c)
		if err == nil {
			err = act(ctx, k)
		}
		if err != nil && !apierrors.IsNotFound(err) {
			t.Errorf("servertest: delete %s: %v", what, err)
		}
	})
}

// fatal is an error that no repetition mends.
type fatal struct{ error }

// polling is frequent at first, because most things take a few milliseconds.
func polling() wait.DelayFunc {
	return wait.Backoff{
		Duration: 2 * time.Millisecond, Factor: 2, Cap: 100 * time.Millisecond, Steps: 10,
	}.DelayFunc()
}

// until repeats try until it returns nil or a fatal error. If ctx ends first, the error is the last
// one from try.
func until(ctx context.Context, try func(context.Context) error) error {
	var last error
	err := polling().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		err := try(ctx)
		var end fatal
		switch {
		case errors.As(err, &end):
			return false, end
		case err == nil || ctx.Err() == nil || last == nil:
			last = err
		}
		return err == nil, nil
	})
	var end fatal
	switch {
	case err == nil:
		return nil
	case errors.As(err, &end):
		return end.error
	case last == nil:
		return err // ctx had ended before
	}
	return fmt.Errorf("%w (%w)", last, err)
}

// replace creates an object, or replaces the one that exists. It returns what was stored, and
// whether it was created.
func replace(
	ctx context.Context, resource dynamic.ResourceInterface, u *unstructured.Unstructured,
) (stored *unstructured.Unstructured, created bool, err error) {
	stored, err = resource.Create(ctx, u, metav1.CreateOptions{FieldManager: fieldManager})
	if !apierrors.IsAlreadyExists(err) {
		return stored, err == nil, err
	}
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		present, err := resource.Get(ctx, u.GetName(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		u.SetResourceVersion(present.GetResourceVersion())
		stored, err = resource.Update(ctx, u, metav1.UpdateOptions{FieldManager: fieldManager})
		return err
	})
	return stored, false, err
}

// named returns how messages name an object.
func named(u *unstructured.Unstructured) string {
	name := u.GetName()
	if name == "" {
		name = u.GetGenerateName() + "*"
	}
	if u.GetNamespace() != "" {
		name = u.GetNamespace() + "/" + name
	}
	return u.GetKind() + " " + name
}
