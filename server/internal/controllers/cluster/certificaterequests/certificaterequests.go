package certificaterequests

import (
	"context"
	"crypto"
	"crypto/x509"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

// fieldManager is the field manager of all changes, as in kube-controller-manager.
const fieldManager = "kube-controller-manager"

// Authority is a certificate authority. Sign issues a PEM encoded certificate with the subject,
// names and usages of the template. It may be valid for a shorter time than requested.
type Authority interface {
	Sign(template *x509.Certificate, public crypto.PublicKey, validity time.Duration) ([]byte, error)
}

func after() []schema.GroupResource {
	return []schema.GroupResource{certificatesv1.Resource("certificatesigningrequests")}
}

// each returns the work of a loop that looks at requests one by one. Sync gets a copy.
func each(
	c *loop.Controller,
	sync func(context.Context, *certificatesv1.CertificateSigningRequest) (time.Duration, error),
) loop.Work {
	requests := c.Informer(&certificatesv1.CertificateSigningRequest{})
	return loop.Work{
		Watches: []loop.Watch{loop.Keys(requests, c.Enqueue)},
		Sync: func(ctx context.Context, name string) (time.Duration, error) {
			r := loop.Get[certificatesv1.CertificateSigningRequest](requests, name)
			if r == nil {
				return 0, nil
			}
			return sync(ctx, r.DeepCopy())
		},
	}
}

// condition returns the condition of a type if its status is true, or nil.
func condition(
	r *certificatesv1.CertificateSigningRequest, t certificatesv1.RequestConditionType,
) *certificatesv1.CertificateSigningRequestCondition {
	for i := range r.Status.Conditions {
		c := &r.Status.Conditions[i]
		// Conditions of the time before Kubernetes 1.19 have no status.
		if c.Type == t && (c.Status == corev1.ConditionTrue || c.Status == "") {
			return c
		}
	}
	return nil
}

func approved(r *certificatesv1.CertificateSigningRequest) bool {
	return condition(r, certificatesv1.CertificateApproved) != nil && !denied(r)
}

func denied(r *certificatesv1.CertificateSigningRequest) bool {
	return condition(r, certificatesv1.CertificateDenied) != nil
}

func failed(r *certificatesv1.CertificateSigningRequest) bool {
	return condition(r, certificatesv1.CertificateFailed) != nil
}
