package apitest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest"
)

// TestAggregatorServicesAtStart deletes and changes APIServices that exist when the server starts.
func TestAggregatorServicesAtStart(t *testing.T) {
	t.Parallel()
	origin := extend(t, servertest.Run(t))
	e := startExtension(t, "127.0.0.1", "there")
	origin.service("there", corev1.ServiceSpec{
		Type: corev1.ServiceTypeExternalName, ExternalName: "localhost",
	})
	origin.await(origin.register("there", e.port, trusting(e)), "Passed")
	snapshot, err := origin.server.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	fork := servertest.Run(t, func(o *server.Options) { o.From = snapshot })

	t.Run("deleted", func(t *testing.T) {
		t.Parallel()
		c := extend(t, fork)
		const group = "/apis/there.example.com"
		c.awaitStatus(group+"/v1/echoes/one", http.StatusOK)
		c.awaitListed(group, true)
		if err := c.aggregator.ApiregistrationV1().APIServices().Delete(t.Context(),
			"v1.there.example.com", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		c.awaitStatus(group+"/v1/echoes/one", http.StatusNotFound)
		c.awaitStatus(group, http.StatusNotFound)
		c.awaitListed(group, false)
		c.register("there", e.port, trusting(e))
		c.awaitStatus(group+"/v1/echoes/one", http.StatusOK)
		c.awaitStatus(group, http.StatusOK)
		c.awaitListed(group, true)
	})
	// A local version that another server serves for a while. It is registered again when the
	// APIService is deleted.
	t.Run("changed", func(t *testing.T) {
		t.Parallel()
		c := extend(t, fork)
		services := c.aggregator.ApiregistrationV1().APIServices()
		batch, err := services.Get(t.Context(), "v1.batch", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		batch.Spec.Service = &apiregistrationv1.ServiceReference{
			Namespace: metav1.NamespaceDefault, Name: "there", Port: &e.port,
		}
		batch.Spec.CABundle = e.caBundle
		if _, err := services.Update(t.Context(), batch, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		c.awaitStatus("/apis/batch/v1/echoes/one", http.StatusOK)
		if err := services.Delete(t.Context(), batch.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		c.awaitStatus("/apis/batch/v1/echoes/one", http.StatusNotFound)
		c.awaitStatus("/apis/batch/v1/jobs", http.StatusOK)
		c.awaitStatus("/apis/batch/v1", http.StatusOK)
		c.awaitListed("/apis/batch", true)
	})
}

// awaitListed waits until the index does or does not have the paths of an API group and of its
// version v1.
func (c extendedCluster) awaitListed(group string, want bool) {
	c.Helper()
	eventually(c.T, group, func() error {
		_, index := c.get("/")
		for _, path := range []string{group, group + "/v1"} {
			if strings.Contains(index, fmt.Sprintf("%q", path)) != want {
				return fmt.Errorf("the index is %s", index)
			}
		}
		return nil
	})
}
