package certificaterequests

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	certificateslisters "k8s.io/client-go/listers/certificates/v1"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

// CleanupName is the name of the cleaning loop in kube-controller-manager.
const CleanupName = "certificatesigningrequest-cleaner-controller"

// The times after which requests are deleted, and how often the controller looks, as in
// kube-controller-manager.
const (
	cleanupInterval = 10 * time.Minute
	pendingKept     = 24 * time.Hour
	decidedKept     = time.Hour
)

// Cleanup is the loop that deletes old requests: those that are denied, failed or issued, after an
// hour, and those that nobody has decided on, after a day.
func Cleanup() loop.Loop {
	return loop.Loop{
		Name: CleanupName, Alias: "csrcleaner", After: after(),
		Purpose: "deletes old CertificateSigningRequests",
		Begin: func(c *loop.Controller) loop.Work {
			requests := c.Informer(&certificatesv1.CertificateSigningRequest{})
			lister := certificateslisters.NewCertificateSigningRequestLister(requests.GetIndexer())
			c.Add("") // the only key
			return loop.Work{
				Watches: []loop.Watch{{Informer: requests}},
				Sync: func(ctx context.Context, _ string) (time.Duration, error) {
					all, err := lister.List(labels.Everything())
					return cleanupInterval, errors.Join(err, deleteOld(ctx, c.Client, all))
				},
			}
		},
	}
}

func deleteOld(
	ctx context.Context, client kubernetes.Interface, all []*certificatesv1.CertificateSigningRequest,
) error {
	var errs []error
	for _, r := range all {
		if !old(r, time.Now()) {
			continue
		}
		err := client.CertificatesV1().CertificateSigningRequests().Delete(ctx, r.Name,
			metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(r.UID))})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		errs = append(errs, loop.IgnoreChanged(err))
	}
	return errors.Join(errs...)
}

// old reports whether a request is to be deleted.
func old(r *certificatesv1.CertificateSigningRequest, now time.Time) bool {
	olderThan := func(t certificatesv1.RequestConditionType, age time.Duration) bool {
		c := condition(r, t)
		return c != nil && now.Sub(c.LastUpdateTime.Time) > age
	}
	issued := len(r.Status.Certificate) > 0
	decided := approved(r) || denied(r) || failed(r)
	switch {
	case !decided && now.Sub(r.CreationTimestamp.Time) > pendingKept,
		olderThan(certificatesv1.CertificateDenied, decidedKept),
		olderThan(certificatesv1.CertificateFailed, decidedKept),
		issued && olderThan(certificatesv1.CertificateApproved, decidedKept):
		return true
	}
	return issued && expired(r.Status.Certificate, now)
}

// expired reports whether the first certificate in a PEM bundle has expired.
func expired(bundle []byte, now time.Time) bool {
	block, _ := pem.Decode(bundle)
	if block == nil {
		return false
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	return err == nil && now.After(cert.NotAfter)
}
