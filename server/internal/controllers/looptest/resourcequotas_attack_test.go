package looptest

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/server"
	evaluators "github.com/kinproc/kinproc/server/internal/admission/quota"
	"github.com/kinproc/kinproc/server/internal/controllers/cluster/resourcequotas"
	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
	"github.com/kinproc/kinproc/server/servertest"
)

// runResourceQuotas runs the controller with a client of its own, which it returns.
func runResourceQuotas(
	t *testing.T, config *rest.Config, charges *evaluators.Charges,
) kubernetes.Interface {
	t.Helper()
	client := kubernetes.NewForConfigOrDie(config)
	d, _ := workloadtest.Dependencies(client)
	d.Metadata = metadata.NewForConfigOrDie(config)
	workloadtest.Start(t, d, resourcequotas.Loop(charges))
	return client
}

// However long a request takes to store its object, nobody else gets what it has paid for.
func TestAttackSlowlyStoredObject(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, func(o *server.Options) {
		o.Controllers = []string{"*", "-" + resourcequotas.Name}
	})
	charges := &evaluators.Charges{}
	client := runResourceQuotas(t, s.RESTConfig(), charges)
	n := resourceQuotasIn(t, client, "n")
	n.quota("q", corev1.ResourceQuotaSpec{Hard: resourceQuantities("pods", "5")})
	n.used("q", "pods", "0")

	stored := charges.Begin(t.Context(), "n")
	q, err := client.CoreV1().ResourceQuotas("n").Get(t.Context(), "q", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	q.Status.Used = resourceQuantities("pods", "1")
	if _, err := client.CoreV1().ResourceQuotas("n").UpdateStatus(t.Context(), q,
		metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	for until := time.Now().Add(4 * resourcequotas.ReduceAfter); time.Now().Before(until); {
		n.used("q", "pods", "1")
	}
	stored() // it was not
	n.used("q", "pods", "0")
}

// counter counts requests for discovery.
type counter struct {
	http.RoundTripper
	n *atomic.Int64
}

func (c counter) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.Count(r.URL.Path, "/") < 4 {
		c.n.Add(1)
	}
	return c.RoundTripper.RoundTrip(r)
}

// A quota of thousands of resources, hardly any of which exist, does not cost a request each.
func TestAttackQuotaOfManyResources(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, func(o *server.Options) {
		o.Controllers = []string{"*", "-" + resourcequotas.Name}
	})
	var discoveries atomic.Int64
	config := s.RESTConfig()
	config.QPS = -1
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper { return counter{rt, &discoveries} })
	client := runResourceQuotas(t, config, &evaluators.Charges{})
	hard := resourceQuantities("count/deployments.apps", "5", "count/configmaps", "5")
	for i := range 5_000 {
		for _, name := range []string{"count/nothing%d.apps", "requests.example.com/nothing%d"} {
			hard[corev1.ResourceName(fmt.Sprintf(name, i))] = resource.MustParse("5")
		}
	}
	mine, theirs := resourceQuotasIn(t, client, "mine"), resourceQuotasIn(t, client, "theirs")
	began := time.Now()
	mine.quota("many", corev1.ResourceQuotaSpec{Hard: hard})
	theirs.quota("q", corev1.ResourceQuotaSpec{Hard: resourceQuantities("pods", "5")})
	theirs.used("q", "pods", "0")
	workloadtest.Await(t, "what exists is counted",
		func(ctx context.Context) (*corev1.ResourceQuota, error) {
			return client.CoreV1().ResourceQuotas("mine").Get(ctx, "many", metav1.GetOptions{})
		}, func(q *corev1.ResourceQuota) bool {
			_, ok := q.Status.Used["count/deployments.apps"]
			return ok && len(q.Status.Used) == 2+5_000
		})
	// Each look costs a few requests, and there are at most ten a second.
	if n, most := discoveries.Load(), 50+50*int64(time.Since(began)/time.Second); n > most {
		t.Errorf("%d requests for discovery, want at most %d", n, most)
	}
}
