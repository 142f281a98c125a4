package looptest

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/controllers/network/servicecidrs"
	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
	"github.com/kinproc/kinproc/server/servertest"
)

// TestServiceCIDRInUse deletes a ServiceCIDR that contains the cluster IP of a service.
func TestServiceCIDRInUse(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, func(o *server.Options) { o.Controllers = []string{servicecidrs.Name} })
	client := workloadtest.Client(t, s)
	cidrs := client.NetworkingV1().ServiceCIDRs()
	more := &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: "more"},
		Spec:       networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.9.0.0/24"}},
	}
	if _, err := cidrs.Create(t.Context(), more, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	serviceCIDRAwait(t, client, "ready, with the finalizer", func(c *networkingv1.ServiceCIDR) bool {
		return slices.Contains(c.Finalizers, servicecidrs.Finalizer) &&
			meta.IsStatusConditionTrue(c.Status.Conditions, networkingv1.ServiceCIDRConditionReady)
	})
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "s"},
		Spec:       corev1.ServiceSpec{ClusterIP: "10.9.0.5", Ports: []corev1.ServicePort{{Port: 80}}},
	}
	services := client.CoreV1().Services(metav1.NamespaceDefault)
	if _, err := services.Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := cidrs.Delete(t.Context(), "more", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	serviceCIDRAwait(t, client, "terminating", func(c *networkingv1.ServiceCIDR) bool {
		ready := meta.FindStatusCondition(c.Status.Conditions, networkingv1.ServiceCIDRConditionReady)
		return ready != nil && ready.Reason == networkingv1.ServiceCIDRReasonTerminating &&
			slices.Contains(c.Finalizers, servicecidrs.Finalizer)
	})
	service.Name, service.Spec.ClusterIP = "s2", "10.9.0.6"
	if _, err := services.Create(t.Context(), service, metav1.CreateOptions{}); err == nil {
		t.Error("a ServiceCIDR that is being deleted allocated an address")
	}
}

// serviceCIDRAwait watches the ServiceCIDR until it meets the condition.
func serviceCIDRAwait(
	t *testing.T, client kubernetes.Interface, what string,
	condition func(*networkingv1.ServiceCIDR) bool,
) {
	t.Helper()
	w, err := client.NetworkingV1().ServiceCIDRs().Watch(t.Context(), metav1.ListOptions{
		FieldSelector:  fields.OneTermEqualSelector("metadata.name", "more").String(),
		TimeoutSeconds: new(int64(30)),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	var last any
	for event := range w.ResultChan() {
		last = event.Object
		if c, ok := event.Object.(*networkingv1.ServiceCIDR); ok && condition(c) {
			return
		}
	}
	t.Fatalf("timed out: the ServiceCIDR was not %s: %v", what, last)
}
