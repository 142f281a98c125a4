package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	webhookerrors "k8s.io/apiserver/pkg/admission/plugin/webhook/errors"
	webhookutil "k8s.io/apiserver/pkg/util/webhook"
)

func TestRefused(t *testing.T) {
	t.Parallel()
	pods := corev1.Resource("pods")
	teapot := &metav1.Status{Code: http.StatusTeapot, Message: "short and stout"}
	for _, test := range []struct {
		name string
		err  error
		want bool
	}{
		{"quota", apierrors.NewForbidden(pods, "p", errors.New("exceeded quota")), true},
		{
			"policy that says Invalid",
			apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Pod").GroupKind(), "p", nil), true,
		},
		{"policy that says Unauthorized", apierrors.NewUnauthorized("not you"), true},
		{
			"policy that says RequestEntityTooLarge", apierrors.NewRequestEntityTooLargeError("too long"),
			true,
		},
		{"webhook with a status of its own", webhookerrors.ToStatusErr("w", teapot), true},
		{"webhook without a status", webhookerrors.ToStatusErr("w", nil), true},
		{"webhook that fails", apierrors.NewInternalError(&webhookutil.ErrCallingWebhook{
			WebhookName: "w",
			Reason:      errors.New("refused"),
		}), true},
		{"wrapped", fmt.Errorf("namespace a: %w", apierrors.NewForbidden(pods, "p", nil)), true},

		{"none", nil, false},
		{"exists", apierrors.NewAlreadyExists(pods, "p"), false},
		{"conflict", apierrors.NewConflict(pods, "p", errors.New("changed")), false},
		{"not found", apierrors.NewNotFound(pods, "p"), false},
		{"storage too slow", apierrors.NewServerTimeout(pods, "create", 1), false},
		{"server too slow", apierrors.NewTimeoutError("later", 1), false},
		{"too many requests", apierrors.NewTooManyRequestsError("later"), false},
		{"server not ready", apierrors.NewServiceUnavailable("later"), false},
		{"connection", errors.New("admission webhook denied the request, says nobody"), false},
		{"end", context.Canceled, false},
	} {
		if got := refused(test.err); got != test.want {
			t.Errorf("%s: refused is %t, want %t", test.name, got, test.want)
		}
	}
}
