package certificaterequests

import (
	"context"
	"crypto"
	"crypto/x509"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

// fieldManager is the field manager of all changes, as in kube-controller-manager.
const fieldManager = "kube-controller-manager"

// Dependencies are what the controllers need.
type Dependencies struct {
	Client kubernetes.Interface
	// Informers is a factory. The controllers start the informer that they need.
	Informers informers.SharedInformerFactory
	// CA signs certificates.
	CA Authority
}

// Authority is a certificate authority. Sign issues a PEM encoded certificate with the subject,
// names and usages of the template. It may be valid for a shorter time than requested.
type Authority interface {
	Sign(template *x509.Certificate, public crypto.PublicKey, validity time.Duration) ([]byte, error)
}

// Controller is a controller that looks at requests one by one.
type Controller struct {
	Dependencies
	name string
	sync func(ctx context.Context, r *certificatesv1.CertificateSigningRequest) (time.Duration, error)
}

// Run runs the controller until ctx ends. It returns when all goroutines of the controller have
// ended.
func (c *Controller) Run(ctx context.Context) error {
	queue := loop.New(c.name)
	changed := func(obj any) { queue.Soon(obj.(*certificatesv1.CertificateSigningRequest).Name) }
	requests := c.Informers.Certificates().V1().CertificateSigningRequests()
	informer := requests.Informer()
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    changed,
		UpdateFunc: func(_, obj any) { changed(obj) },
	})
	if err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	// An error would mean that the handler is another informer's.
	defer func() { _ = informer.RemoveEventHandler(registration) }()
	c.Informers.StartWithContext(ctx)
	return queue.Run(ctx, 1, func(ctx context.Context, name string) (time.Duration, error) {
		r, err := requests.Lister().Get(name)
		if apierrors.IsNotFound(err) {
			return 0, nil
		}
		if err != nil {
			return 0, err
		}
		return c.sync(ctx, r.DeepCopy())
	}, registration.HasSyncedChecker())
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
