package certificaterequests

import (
	"context"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/certificate/csr"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

// SigningName is the name of the signing loop in kube-controller-manager.
const SigningName = "certificatesigningrequest-signing-controller"

// Signing is the loop that signs the approved requests of the four signers of Kubernetes that issue
// certificates: kube-apiserver-client, kube-apiserver-client-kubelet, kubelet-serving and
// legacy-unknown.
func Signing(ca Authority) loop.Loop {
	return loop.Loop{
		Name: SigningName, Alias: "csrsigning", After: after(),
		Purpose: "signs approved CertificateSigningRequests",
		Begin:   func(c *loop.Controller) loop.Work { return each(c, signing{c.Client, ca}.sync) },
	}
}

type signing struct {
	client kubernetes.Interface
	ca     Authority
}

// The validity of certificates, as in kube-controller-manager. A request may ask for less time, but
// not for less than the minimum.
const (
	validity    = 365 * 24 * time.Hour
	minValidity = 10 * time.Minute
)

func (s signing) sync(
	ctx context.Context, r *certificatesv1.CertificateSigningRequest,
) (time.Duration, error) {
	check, ok := signers[r.Spec.SignerName]
	if !ok || !approved(r) || failed(r) || len(r.Status.Certificate) > 0 {
		return 0, nil
	}
	request, err := parse(r.Spec.Request)
	if err != nil {
		return 0, err // validation refuses such requests
	}
	var issued []byte
	wanted, err := template(request, r.Spec.Usages)
	if err == nil {
		err = check(request, r.Spec.Usages)
	}
	if err == nil {
		err = request.CheckSignature()
	}
	if err == nil {
		if issued, err = s.ca.Sign(wanted, request.PublicKey, requestedValidity(r)); err != nil {
			return 0, fmt.Errorf("sign %s: %w", r.Name, err)
		}
		r.Status.Certificate = issued
	} else {
		now := metav1.Now()
		r.Status.Conditions = append(r.Status.Conditions,
			certificatesv1.CertificateSigningRequestCondition{
				Type:               certificatesv1.CertificateFailed,
				Status:             corev1.ConditionTrue,
				Reason:             "SignerValidationFailure",
				Message:            err.Error(),
				LastUpdateTime:     now,
				LastTransitionTime: now,
			})
	}
	_, err = s.client.CertificatesV1().CertificateSigningRequests().UpdateStatus(ctx, r,
		metav1.UpdateOptions{FieldManager: fieldManager})
	return 0, err
}

func requestedValidity(r *certificatesv1.CertificateSigningRequest) time.Duration {
	if r.Spec.ExpirationSeconds == nil {
		return validity
	}
	return max(min(csr.ExpirationSecondsToDuration(*r.Spec.ExpirationSeconds), validity), minValidity)
}
