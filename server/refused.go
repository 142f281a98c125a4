package server

import (
	"errors"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ownReasons are the reasons with which the API server answers one of its own writes if neither a
// policy nor a webhook nor a quota has a say in it: the state of the object, and that of the server.
var ownReasons = []metav1.StatusReason{
	metav1.StatusReasonNotFound,
	metav1.StatusReasonAlreadyExists,
	metav1.StatusReasonConflict,
	metav1.StatusReasonServerTimeout,
	metav1.StatusReasonTimeout,
	metav1.StatusReasonTooManyRequests,
	metav1.StatusReasonServiceUnavailable,
}

// refused reports whether err, the answer to a write of the server itself, is due to what users have
// set up. Quotas answer Forbidden, policies with a reason of their own choice, webhooks with any
// status, and a webhook that fails is an InternalError. So every reason counts but ownReasons.
func refused(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && !slices.Contains(ownReasons, status.Status().Reason)
}
