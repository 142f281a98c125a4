package looptest

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"

	"github.com/kinproc/kinproc/server"
	evaluators "github.com/kinproc/kinproc/server/internal/admission/quota"
	"github.com/kinproc/kinproc/server/internal/controllers/cluster/resourcequotas"
	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
	"github.com/kinproc/kinproc/server/servertest"
)

// However long a request takes to store its object, nobody else gets what it has paid for.
func TestAttackSlowlyStoredObject(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, func(o *server.Options) {
		o.Controllers = []string{"*", "-" + resourcequotas.Name}
	})
	client := kubernetes.NewForConfigOrDie(s.RESTConfig())
	charges := &evaluators.Charges{}
	ctx := t.Context()
	d, _ := workloadtest.Dependencies(client)
	d.Metadata = metadata.NewForConfigOrDie(s.RESTConfig())
	workloadtest.Start(t, d, resourcequotas.Loop(charges))
	n := resourceQuotasIn(t, client, "n")
	n.quota("q", corev1.ResourceQuotaSpec{Hard: resourceQuantities("pods", "5")})
	n.used("q", "pods", "0")

	stored := charges.Begin(t.Context(), "n")
	q, err := client.CoreV1().ResourceQuotas("n").Get(ctx, "q", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	q.Status.Used = resourceQuantities("pods", "1")
	if _, err := client.CoreV1().ResourceQuotas("n").UpdateStatus(ctx, q,
		metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	for until := time.Now().Add(4 * resourcequotas.Settle); time.Now().Before(until); {
		n.used("q", "pods", "1")
	}
	stored() // it was not
	n.used("q", "pods", "0")
}
