package certificaterequests

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
)

// CleanupName is the name of the cleaning controller in kube-controller-manager.
const CleanupName = "certificatesigningrequest-cleaner-controller"

// The times after which requests are deleted, and how often the controller looks, as in
// kube-controller-manager.
const (
	cleanupInterval = 10 * time.Minute
	pendingKept     = 24 * time.Hour
	decidedKept     = time.Hour
)

// Cleanup is the controller that deletes old requests: those that are denied, failed or issued,
// after an hour, and those that nobody has decided on, after a day.
type Cleanup struct{ Dependencies }

// NewCleanup returns the controller.
func NewCleanup(d Dependencies) *Cleanup { return &Cleanup{d} }

// Run deletes old requests until ctx ends.
func (c *Cleanup) Run(ctx context.Context) error {
	requests := c.Informers.Certificates().V1().CertificateSigningRequests()
	informer := requests.Informer()
	c.Informers.StartWithContext(ctx)
	if !cache.WaitFor(ctx, "", informer.HasSyncedChecker()) {
		return nil
	}
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		all, err := requests.Lister().List(labels.Everything())
		if err != nil {
			utilruntime.HandleErrorWithContext(ctx, err, "Listing failed", "controller", CleanupName)
		}
		for _, r := range all {
			if !old(r, time.Now()) {
				continue
			}
			err := c.Client.CertificatesV1().CertificateSigningRequests().Delete(ctx, r.Name,
				metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(r.UID))})
			if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
				utilruntime.HandleErrorWithContext(ctx, err, "Deletion failed", "controller", CleanupName,
					"request", r.Name)
			}
		}
	}, cleanupInterval)
	return nil
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
