package apitest

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAdmissionDenyServiceExternalIPs(t *testing.T) {
	t.Parallel()
	p := newPlugin(t, "DenyServiceExternalIPs", nil)
	service := func(ips ...string) *corev1.Service {
		return &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: "s"},
			Spec:       corev1.ServiceSpec{ExternalIPs: ips},
		}
	}
	checkRefused(t, "none", ask(t, p, "services", service(), nil), false)
	checkRefused(t, "new service", ask(t, p, "services", service("192.0.2.1"), nil), true)
	checkRefused(t, "added",
		ask(t, p, "services", service("192.0.2.1", "192.0.2.2"), service("192.0.2.1")), true)
	checkRefused(t, "kept", ask(t, p, "services", service("192.0.2.1"), service("192.0.2.1")), false)
	checkRefused(t, "removed",
		ask(t, p, "services", service("192.0.2.2"), service("192.0.2.1", "192.0.2.2")), false)
	checkRefused(t, "by status", ask(t, p, "services/status", service("192.0.2.1"), service()), false)
}
