package install

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
)

// TestAwaitOfWhatIsForbidden has a server that lets the caller read nothing. Await must not go on.
func TestAwaitOfWhatIsForbidden(t *testing.T) {
	t.Parallel()
	for _, code := range []int{http.StatusForbidden, http.StatusUnauthorized} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "no", code)
		}))
		t.Cleanup(server.Close)
		client, err := New(&rest.Config{Host: server.URL}, "test")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		err = Await(ctx, client.Dynamic.Resource(definitionsResource), "a",
			func(*unstructured.Unstructured) error { return nil })
		if ctx.Err() != nil || !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) {
			t.Errorf("%d: %v", code, err)
		}
	}
}
