package looptest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
)

// A request for a certificate of a pod is deleted after a quarter of an hour.
func TestTimeOfPodCertificateRequest(t *testing.T) {
	inBubble(t, func(t *testing.T, c kubernetes.Interface, _ func(string)) {
		key := workloadtest.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
		request := workloadtest.Must(x509.CreateCertificateRequest(rand.Reader,
			&x509.CertificateRequest{}, key))(t)
		requests := c.CertificatesV1().PodCertificateRequests(workloadtest.Namespace)
		w := workloadtest.Must(requests.Watch(t.Context(), metav1.ListOptions{}))(t)
		defer w.Stop()
		workloadtest.Must(requests.Create(t.Context(), &certificatesv1.PodCertificateRequest{
			ObjectMeta: metav1.ObjectMeta{Name: "r"},
			Spec: certificatesv1.PodCertificateRequestSpec{
				SignerName: "example.com/a", PodName: "p", PodUID: "p-uid", NodeName: "n", NodeUID: "n-uid",
				ServiceAccountName: "default", ServiceAccountUID: "s-uid", StubPKCS10Request: request,
			},
		}, metav1.CreateOptions{}))(t)
		start := time.Now()
		if e := <-w.ResultChan(); e.Type != "ADDED" {
			t.Fatalf("first, the watch says %+v", e)
		}
		if e := <-w.ResultChan(); e.Type != "DELETED" {
			t.Fatalf("then, the watch says %+v", e)
		}
		if took := time.Since(start); took < 14*time.Minute || took > 16*time.Minute {
			t.Errorf("the request was deleted after %v, want 15 minutes", took)
		}
	})
}
