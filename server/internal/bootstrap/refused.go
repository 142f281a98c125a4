package bootstrap

import (
	"errors"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ownReasons are the reasons for which the API server rejects one of its own writes when no policy,
// webhook or quota is involved. They depend only on the state of the object and of the server.
var ownReasons = []metav1.StatusReason{
	metav1.StatusReasonNotFound,
	metav1.StatusReasonAlreadyExists,
	metav1.StatusReasonConflict,
	metav1.StatusReasonServerTimeout,
	metav1.StatusReasonTimeout,
	metav1.StatusReasonTooManyRequests,
	metav1.StatusReasonServiceUnavailable,
}

// refused reports whether err, the response to one of the server's own writes, is due to something
// that users have set up. Quotas answer Forbidden, policies with a reason of their choice, webhooks
// with any status, and a failing webhook causes an InternalError. So every reason counts except
// ownReasons.
func refused(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && !slices.Contains(ownReasons, status.Status().Reason)
}
