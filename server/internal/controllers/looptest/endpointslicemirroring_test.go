package looptest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server/internal/controllers/network/endpointslicemirroring"
	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
	"github.com/kinproc/kinproc/server/servertest"
)

// endpointSliceMirroring is a control plane whose loops are those that a test starts, with the
// Service "db".
type endpointSliceMirroring struct {
	*testing.T
	client kubernetes.Interface
}

func startEndpointSliceMirroring(t *testing.T) endpointSliceMirroring {
	t.Helper()
	s := servertest.Run(t, servertest.WithoutControllers)
	c := endpointSliceMirroring{t, workloadtest.Client(t, s)}
	c.service()
	return c
}

// loop returns a function that starts the loop, and one that stops it. The informers run all the
// time.
func (c endpointSliceMirroring) loop() (start, stop func()) {
	c.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	d, _ := workloadtest.Dependencies(c.client)
	loop := endpointslicemirroring.Loop()
	workloadtest.Must(loop.New(d))(c.T) // makes the informers
	d.Informers.StartWithContext(ctx)
	stop = func() {}
	start = func() {
		ctx, cancel := context.WithCancel(ctx)
		ended := make(chan error, 1)
		controller := workloadtest.Must(loop.New(d))(c.T)
		go func() { ended <- controller.Run(ctx) }()
		stop = sync.OnceFunc(func() {
			cancel()
			if err := <-ended; err != nil {
				c.Error(err)
			}
		})
	}
	c.Cleanup(func() {
		stop()
		cancel()
		d.Informers.Shutdown()
	})
	return start, func() { stop() }
}

func (c endpointSliceMirroring) service() {
	c.Helper()
	workloadtest.Must(c.client.CoreV1().Services("default").Create(c.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "db"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "sql", Port: 5432}}},
	}, metav1.CreateOptions{}))(c)
}

// endpoints creates or replaces the Endpoints of the Service.
func (c endpointSliceMirroring) endpoints(ips ...string) *corev1.Endpoints {
	c.Helper()
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
	return workloadtest.Must(c.client.CoreV1().Endpoints("default").Update(c.Context(), e,
		metav1.UpdateOptions{}))(c)
}

func (c endpointSliceMirroring) deleteEndpoints() {
	c.Helper()
	workloadtest.OK(c, c.client.CoreV1().Endpoints("default").Delete(c.Context(), "db",
		metav1.DeleteOptions{}))
}

func (c endpointSliceMirroring) deleteSlice(name string) {
	c.Helper()
	workloadtest.OK(c, c.client.DiscoveryV1().EndpointSlices("default").Delete(c.Context(), name,
		metav1.DeleteOptions{}))
}

// eventually waits until there are n slices with a number of endpoints in all. If there are owners,
// one of them controls each slice.
func (c endpointSliceMirroring) eventually(
	what string, n, endpoints int, owners ...*corev1.Endpoints,
) []discoveryv1.EndpointSlice {
	c.Helper()
	return workloadtest.Await(c, what,
		func(ctx context.Context) ([]discoveryv1.EndpointSlice, error) {
			list, err := c.client.DiscoveryV1().EndpointSlices("default").List(ctx, metav1.ListOptions{
				LabelSelector: discoveryv1.LabelServiceName + "=db",
			})
			if err != nil {
				return nil, err
			}
			return list.Items, nil
		}, func(list []discoveryv1.EndpointSlice) bool {
			got := 0
			for _, s := range list {
				got += len(s.Endpoints)
				if len(owners) > 0 && !slices.ContainsFunc(owners, func(e *corev1.Endpoints) bool {
					return metav1.IsControlledBy(&s, e)
				}) {
					return false
				}
			}
			return len(list) == n && got == endpoints
		})
}

func TestEndpointSliceMirroring(t *testing.T) {
	t.Parallel()
	c := startEndpointSliceMirroring(t)
	start, _ := c.loop()
	start()
	c.endpoints("192.0.2.1", "192.0.2.2", "2001:db8::1")
	list := c.eventually("created", 2, 3)
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
	c.endpoints("192.0.2.1")
	list = c.eventually("reduced", 1, 1)
	if list[0].Name != names[discoveryv1.AddressTypeIPv4] {
		t.Errorf("slice %s was replaced by %s", names[discoveryv1.AddressTypeIPv4], list[0].Name)
	}
	c.endpoints()
	c.eventually("emptied", 1, 0)
	c.endpoints("192.0.2.9")
	c.eventually("filled", 1, 1)
	// A deleted slice comes back.
	c.deleteSlice(list[0].Name)
	c.eventually("restored", 1, 1)
	// With a selector, the Service is someone else's concern.
	workloadtest.Must(c.client.CoreV1().Services("default").Patch(t.Context(), "db",
		types.MergePatchType, []byte(`{"spec":{"selector":{"app":"db"}}}`), metav1.PatchOptions{}))(t)
	c.eventually("selected", 0, 0)
}

// TestEndpointSliceMirroringRestart changes Endpoints, slices and the Service while the loop does
// not run.
func TestEndpointSliceMirroringRestart(t *testing.T) {
	t.Parallel()
	c := startEndpointSliceMirroring(t)
	start, stop := c.loop()
	start()
	first := c.endpoints("192.0.2.1", "192.0.2.2", "2001:db8::1")
	list := c.eventually("created", 2, 3, first)

	stop()
	c.deleteSlice(list[0].Name)
	first = c.endpoints("192.0.2.1", "2001:db8::1")
	start()
	c.eventually("a slice deleted and another one changed", 2, 2, first)

	stop()
	c.deleteEndpoints()
	second := c.endpoints("192.0.2.3")
	start()
	c.eventually("other Endpoints", 1, 1, second)

	// The same while the loop runs.
	c.deleteEndpoints()
	third := c.endpoints("192.0.2.3", "192.0.2.4")
	c.eventually("other Endpoints again", 1, 2, third)

	stop()
	workloadtest.OK(t, c.client.CoreV1().Services("default").Delete(t.Context(), "db",
		metav1.DeleteOptions{}))
	start()
	c.eventually("no Service", 0, 0)
	c.service()
	// The API server deletes Endpoints with their Service.
	c.eventually("the Service again", 1, 1, c.endpoints("192.0.2.5"))
}

// TestEndpointSliceMirroringOfManyPorts has Endpoints that take thousands of slices. Those of
// another Service do not wait until all of them have been written.
func TestEndpointSliceMirroringOfManyPorts(t *testing.T) {
	t.Parallel()
	c := startEndpointSliceMirroring(t)
	const subsets = 2000
	many := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Name: "many"}}
	for i := range subsets {
		many.Subsets = append(many.Subsets, corev1.EndpointSubset{
			Addresses: []corev1.EndpointAddress{{IP: "10.0.0.1"}},
			Ports:     []corev1.EndpointPort{{Port: int32(i + 1), Protocol: corev1.ProtocolTCP}},
		})
	}
	workloadtest.Must(c.client.CoreV1().Services("default").Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "many"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}},
	}, metav1.CreateOptions{}))(t)
	workloadtest.Must(c.client.CoreV1().Endpoints("default").Create(t.Context(), many,
		metav1.CreateOptions{}))(t)
	start, _ := c.loop()
	start()
	// written waits until there is a slice of the many with a resource version above another one.
	written := func(what, above string) {
		t.Helper()
		workloadtest.Until(t, func(ctx context.Context) string {
			list, err := c.client.DiscoveryV1().EndpointSlices("default").List(ctx, metav1.ListOptions{
				LabelSelector: discoveryv1.LabelServiceName + "=many",
			})
			workloadtest.OK(t, err)
			for _, s := range list.Items {
				newer, err := resourceversion.CompareResourceVersion(s.ResourceVersion, above)
				workloadtest.OK(t, err)
				if newer > 0 {
					return ""
				}
			}
			return fmt.Sprintf("%s: not among %d slices", what, len(list.Items))
		})
	}
	written("the first of many slices", "1")
	other := c.eventually("the slice of another Service", 1, 1, c.endpoints("10.0.0.2"))[0]
	written("a slice after that of another Service", other.ResourceVersion)
}
