package looptest

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
)

// TestResourceQuotasOfMissingKinds limits kinds that nobody serves. Nothing is said to be used of
// them, also after the admission plugin has charged the quota.
func TestResourceQuotasOfMissingKinds(t *testing.T) {
	t.Parallel()
	client, namespace := shared(t)
	five := resource.MustParse("5")
	quotas := client.CoreV1().ResourceQuotas(namespace)
	workloadtest.Must(quotas.Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "q"},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{
			"count/nothings": five, "count/nothings.example.com": five, "count/nothings.apps": five,
			"count/pods.apps": five, "count/secrets": five, "secrets": five,
		}},
	}, metav1.CreateOptions{}))(t)
	is := func(what string, secrets int64) {
		t.Helper()
		q := workloadtest.Await(t, what, func(ctx context.Context) (*corev1.ResourceQuota, error) {
			return quotas.Get(ctx, "q", metav1.GetOptions{})
		}, func(q *corev1.ResourceQuota) bool {
			used, ok := q.Status.Used[corev1.ResourceSecrets]
			return ok && used.Value() == secrets
		})
		if len(q.Status.Used) != 2 || len(q.Status.Hard) != 6 {
			t.Errorf("%s: used %v of %v", what, q.Status.Used, q.Status.Hard)
		}
	}
	is("counted", 0)
	workloadtest.Must(client.CoreV1().Secrets(namespace).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "s"},
	}, metav1.CreateOptions{}))(t)
	is("charged", 1)
}
