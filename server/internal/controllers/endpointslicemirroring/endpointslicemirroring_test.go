package endpointslicemirroring_test

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/controllers/endpointslicemirroring"
	"github.com/kinproc/kinproc/server/servertest"
)

func TestMirroring(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, func(o *server.Options) {
		o.Controllers = []string{endpointslicemirroring.Name}
	})
	client, ctx := kubernetes.NewForConfigOrDie(s.RESTConfig()), t.Context()
	// eventually waits until there are n slices with a number of endpoints in all.
	eventually := func(what string, n, endpoints int) []discoveryv1.EndpointSlice {
		t.Helper()
		var list *discoveryv1.EndpointSliceList
		err := wait.PollUntilContextTimeout(ctx, 2*time.Millisecond, 30*time.Second, true,
			func(ctx context.Context) (bool, error) {
				var err error
				list, err = client.DiscoveryV1().EndpointSlices("default").List(ctx, metav1.ListOptions{
					LabelSelector: discoveryv1.LabelServiceName + "=db",
				})
				if err != nil {
					return false, err
				}
				got := 0
				for _, s := range list.Items {
					got += len(s.Endpoints)
				}
				return len(list.Items) == n && got == endpoints, nil
			})
		if err != nil {
			t.Fatalf("%s: %v; %+v", what, err, list)
		}
		return list.Items
	}
	endpoints := func(ips ...string) {
		t.Helper()
		e := &corev1.Endpoints{
			ObjectMeta: metav1.ObjectMeta{Name: "db", Labels: map[string]string{"team": "a"}},
		}
		if len(ips) > 0 {
			e.Subsets = []corev1.EndpointSubset{{
				Ports: []corev1.EndpointPort{{Name: "sql", Port: 5432, Protocol: corev1.ProtocolTCP}},
			}}
		}
		for _, ip := range ips {
			e.Subsets[0].Addresses = append(e.Subsets[0].Addresses, corev1.EndpointAddress{IP: ip})
		}
		_, err := client.CoreV1().Endpoints("default").Update(ctx, e, metav1.UpdateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := client.CoreV1().Services("default").Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "db"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "sql", Port: 5432}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	endpoints("192.0.2.1", "192.0.2.2", "2001:db8::1")
	list := eventually("created", 2, 3)
	names := map[discoveryv1.AddressType]string{}
	for _, s := range list {
		names[s.AddressType] = s.Name
		if s.OwnerReferences[0].Kind != "Endpoints" || *s.Ports[0].Port != 5432 ||
			s.Labels["team"] != "a" || s.GenerateName != "db-" ||
			s.Labels[discoveryv1.LabelManagedBy] != "endpointslicemirroring-controller.k8s.io" {
			t.Errorf("unexpected slice: %+v", s)
		}
	}
	if len(names) != 2 {
		t.Errorf("families: %v", names)
	}
	endpoints("192.0.2.1")
	list = eventually("reduced", 1, 1)
	if list[0].Name != names[discoveryv1.AddressTypeIPv4] {
		t.Errorf("slice %s was replaced by %s", names[discoveryv1.AddressTypeIPv4], list[0].Name)
	}
	endpoints()
	eventually("emptied", 1, 0)
	endpoints("192.0.2.9")
	eventually("filled", 1, 1)
	// A deleted slice comes back.
	if err := client.DiscoveryV1().EndpointSlices("default").Delete(ctx, list[0].Name,
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually("restored", 1, 1)
	// With a selector, the Service is someone else's concern.
	if _, err := client.CoreV1().Services("default").Patch(ctx, "db", types.MergePatchType,
		[]byte(`{"spec":{"selector":{"app":"db"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually("selected", 0, 0)
}
