package certificaterequests

import (
	"context"
	"crypto/x509"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

// ApprovalName is the name of the approving loop in kube-controller-manager.
const ApprovalName = "certificatesigningrequest-approving-controller"

// Approval is the loop that approves requests of kubelets for client certificates, if the requester
// may create the subresource nodeclient or selfnodeclient of requests.
func Approval() loop.Loop {
	return loop.Loop{
		Name: ApprovalName, Alias: "csrapproving", After: after(),
		Purpose: "approves the CertificateSigningRequests of kubelets",
		Begin:   func(c *loop.Controller) loop.Work { return each(c, approval{c.Client}.sync) },
	}
}

type approval struct{ client kubernetes.Interface }

// recognizer recognizes the requests that whoever has a permission gets approved.
type recognizer struct {
	recognizes  func(*certificatesv1.CertificateSigningRequest, *x509.CertificateRequest) bool
	subresource string // the permission is to create it
	message     string
}

var recognizers = []recognizer{
	{
		recognizes: func(
			r *certificatesv1.CertificateSigningRequest, request *x509.CertificateRequest,
		) bool {
			return forKubeletClient(r, request) && r.Spec.Username == request.Subject.CommonName
		},
		subresource: "selfnodeclient",
		message:     "Auto approving self kubelet client certificate after SubjectAccessReview.",
	},
	{
		recognizes:  forKubeletClient,
		subresource: "nodeclient",
		message:     "Auto approving kubelet client certificate after SubjectAccessReview.",
	},
}

func forKubeletClient(
	r *certificatesv1.CertificateSigningRequest, request *x509.CertificateRequest,
) bool {
	return r.Spec.SignerName == certificatesv1.KubeAPIServerClientKubeletSignerName &&
		checkKubeletClient(request, r.Spec.Usages) == nil
}

// unauthorizedPoll is for a request whose requester lacks the permission. No event tells when the
// requester gets it.
const unauthorizedPoll = loop.Poll(time.Hour)

func (a approval) sync(
	ctx context.Context, r *certificatesv1.CertificateSigningRequest,
) (time.Duration, error) {
	if len(r.Status.Certificate) > 0 || approved(r) || denied(r) {
		return 0, nil
	}
	request, err := parse(r.Spec.Request)
	if err != nil {
		return 0, err // validation refuses such requests
	}
	var unauthorized error
	for _, known := range recognizers {
		if !known.recognizes(r, request) {
			continue
		}
		allowed, err := a.allowed(ctx, r, known.subresource)
		if err != nil {
			return 0, err
		}
		if !allowed {
			unauthorized = unauthorizedPoll
			continue
		}
		now := metav1.Now()
		r.Status.Conditions = append(r.Status.Conditions,
			certificatesv1.CertificateSigningRequestCondition{
				Type:               certificatesv1.CertificateApproved,
				Status:             corev1.ConditionTrue,
				Reason:             "AutoApproved",
				Message:            known.message,
				LastUpdateTime:     now,
				LastTransitionTime: now,
			})
		_, err = a.client.CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, r.Name, r,
			metav1.UpdateOptions{FieldManager: fieldManager})
		return 0, err
	}
	return 0, unauthorized
}

// allowed reports whether the requester may create a subresource of requests.
func (a approval) allowed(
	ctx context.Context, r *certificatesv1.CertificateSigningRequest, subresource string,
) (bool, error) {
	extra := map[string]authorizationv1.ExtraValue{}
	for key, values := range r.Spec.Extra {
		extra[key] = authorizationv1.ExtraValue(values)
	}
	review, err := a.client.AuthorizationV1().SubjectAccessReviews().Create(ctx,
		&authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:   r.Spec.Username,
			UID:    r.Spec.UID,
			Groups: r.Spec.Groups,
			Extra:  extra,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Group:       certificatesv1.GroupName,
				Resource:    "certificatesigningrequests",
				Verb:        "create",
				Subresource: subresource,
				Version:     "*",
			},
		}}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return review.Status.Allowed, nil
}
