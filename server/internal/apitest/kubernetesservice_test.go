package apitest

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server/internal/bootstrap/kubernetesservice"
)

// TestKubernetesServiceReconcile reconciles as a second server. The running server has done its own
// reconciliation by the time it is ready.
func TestKubernetesServiceReconcile(t *testing.T) {
	t.Parallel()
	_, client := quiet(t)
	ctx := t.Context()
	services := client.CoreV1().Services(metav1.NamespaceDefault)
	service, err := services.Get(ctx, kubernetesservice.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if service.Spec.ClusterIP != "10.0.0.1" {
		t.Errorf("got cluster IP %s, want 10.0.0.1", service.Spec.ClusterIP)
	}

	options := kubernetesservice.Options{
		Address:   netip.MustParseAddr("192.0.2.9"),
		Port:      6443,
		ServiceIP: netip.MustParseAddr("10.0.0.1"),
	}
	controller := kubernetesservice.New(client, options)
	// Every few seconds, the running server reconciles too, and may do so in between.
	eventually(t, "the second server's objects", func() error {
		first, err := reconciled(ctx, client, controller)
		if err != nil {
			return err
		}
		second, err := reconciled(ctx, client, controller)
		if err != nil {
			return err
		}
		if first != second {
			return fmt.Errorf("unchanged objects were written again: resource versions %v, then %v",
				first, second)
		}
		return nil
	})
}

// reconciled lets the controller reconcile, and checks the objects. It returns their resource
// versions.
func reconciled(
	ctx context.Context, client kubernetes.Interface, controller *kubernetesservice.Controller,
) (versions [3]string, err error) {
	if err := controller.Reconcile(ctx); err != nil {
		return versions, err
	}
	service, err := client.CoreV1().Services(metav1.NamespaceDefault).Get(ctx,
		kubernetesservice.Name, metav1.GetOptions{})
	if err != nil {
		return versions, err
	}
	endpoints, err := client.CoreV1().Endpoints(metav1.NamespaceDefault).Get(ctx,
		kubernetesservice.Name, metav1.GetOptions{})
	if err != nil {
		return versions, err
	}
	slice, err := client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Get(ctx,
		kubernetesservice.Name, metav1.GetOptions{})
	if err != nil {
		return versions, err
	}
	if port := service.Spec.Ports[0].TargetPort.IntValue(); port != 6443 {
		return versions, fmt.Errorf("got target port %d, want 6443", port)
	}
	if s := endpoints.Subsets; len(s) != 1 || len(s[0].Addresses) != 1 ||
		s[0].Addresses[0].IP != "192.0.2.9" || s[0].Ports[0].Port != 6443 {
		return versions, fmt.Errorf("unexpected endpoints %v", s)
	}
	if e := slice.Endpoints; len(e) != 1 || e[0].Addresses[0] != "192.0.2.9" ||
		*slice.Ports[0].Port != 6443 {
		return versions, fmt.Errorf("unexpected endpoints %v or ports %v of the slice", e, slice.Ports)
	}
	if slice.Labels[discoveryv1.LabelServiceName] != kubernetesservice.Name {
		return versions, fmt.Errorf("unexpected labels of the slice: %v", slice.Labels)
	}
	return [3]string{service.ResourceVersion, endpoints.ResourceVersion, slice.ResourceVersion}, nil
}
