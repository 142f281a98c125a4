package looptest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/controllers/network/endpoints"
	"github.com/kinproc/kinproc/server/internal/controllers/network/endpointslices"
	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
	"github.com/kinproc/kinproc/server/servertest"
)

// endpointSlices is a namespace whose pods a test runs by hand.
type endpointSlices struct {
	*testing.T
	*server.Server // nil if it is the shared one
	client         kubernetes.Interface
	namespace      string
}

func startEndpointSlices(t *testing.T, configure ...func(*server.Options)) *endpointSlices {
	t.Helper()
	s, client := workloadtest.Run(t, []string{endpointslices.Name, endpoints.Name}, configure...)
	return &endpointSlices{t, s, client, workloadtest.Namespace}
}

func (c *endpointSlices) node(name, zone string) {
	c.Helper()
	workloadtest.Must(c.client.CoreV1().Nodes().Create(c.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{corev1.LabelTopologyZone: zone},
		},
	}, metav1.CreateOptions{}))(c.T)
}

func (c *endpointSlices) service(name string, change func(*corev1.ServiceSpec)) *corev1.Service {
	c.Helper()
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"team": "a"}},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": "web"},
			Ports: []corev1.ServicePort{
				{Name: "http", Port: 80, TargetPort: intstr.FromString("web")},
				{Name: "admin", Port: 81},
			},
		},
	}
	if change != nil {
		change(&s.Spec)
	}
	return workloadtest.Must(c.client.CoreV1().Services(c.namespace).Create(c.Context(), s,
		metav1.CreateOptions{}))(c.T)
}

// pod creates a pod of the application on a node, with an address once it runs.
func (c *endpointSlices) pod(name, node, ip string, ready bool) {
	c.Helper()
	pods := c.client.CoreV1().Pods(c.namespace)
	workloadtest.Must(pods.Create(c.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{
			NodeName: node,
			Containers: []corev1.Container{{
				Name: "c", Image: "i", Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: 8080}},
			}},
			AutomountServiceAccountToken: new(false),
		},
	}, metav1.CreateOptions{}))(c.T)
	c.status(name, ip, ready)
}

func (c *endpointSlices) status(name, ip string, ready bool) {
	c.Helper()
	status := map[bool]string{true: "True", false: "False"}[ready]
	workloadtest.Must(c.client.CoreV1().Pods(c.namespace).Patch(c.Context(), name,
		types.StrategicMergePatchType, fmt.Appendf(nil, `{"status":{"phase":"Running","podIP":%q,
		"podIPs":[{"ip":%[1]q}],"conditions":[{"type":"Ready","status":%q}]}}`, ip, status),
		metav1.PatchOptions{}, "status"))(c.T)
}

// slices returns the slices of a service once check accepts them.
func (c *endpointSlices) slices(
	service string, check func([]discoveryv1.EndpointSlice) error,
) []discoveryv1.EndpointSlice {
	c.Helper()
	var found []discoveryv1.EndpointSlice
	workloadtest.Until(c.T, func(ctx context.Context) string {
		list, err := c.client.DiscoveryV1().EndpointSlices(c.namespace).List(ctx, metav1.ListOptions{
			LabelSelector: discoveryv1.LabelServiceName + "=" + service,
		})
		if err != nil {
			return err.Error()
		}
		found = list.Items
		if err := check(found); err != nil {
			return fmt.Sprintf("%s: %v; %+v", service, err, found)
		}
		return ""
	})
	return found
}

// endpointSlicesWith returns a check of the number of endpoints, and of those that are ready.
func endpointSlicesWith(all, ready int) func([]discoveryv1.EndpointSlice) error {
	return func(list []discoveryv1.EndpointSlice) error {
		var n, r int
		for _, s := range list {
			n += len(s.Endpoints)
			for _, e := range s.Endpoints {
				if ptr.Deref(e.Conditions.Ready, false) {
					r++
				}
			}
		}
		if n != all || r != ready || len(list) == 0 {
			return fmt.Errorf("%d slices have %d endpoints of which %d are ready, want %d and %d",
				len(list), n, r, all, ready)
		}
		return nil
	}
}

func TestEndpointSlicesService(t *testing.T) {
	t.Parallel()
	c := startEndpointSlices(t)
	c.node("n1", "zone-1")
	s := c.service("web", nil)
	empty := c.slices("web", endpointSlicesWith(0, 0))
	c.pod("a", "n1", "10.0.0.1", true)
	c.pod("b", "n1", "10.0.0.2", false)
	list := c.slices("web", endpointSlicesWith(2, 1))
	if len(list) != 1 || list[0].Name != empty[0].Name {
		t.Errorf("the empty slice %s was not used: %+v", empty[0].Name, list)
	}
	slice := list[0]
	if !metav1.IsControlledBy(&slice, s) || slice.GenerateName != "web-" ||
		slice.Labels[discoveryv1.LabelManagedBy] != "endpointslice-controller.k8s.io" ||
		slice.Labels["team"] != "a" || slice.AddressType != discoveryv1.AddressTypeIPv4 {
		t.Errorf("unexpected metadata: %+v", slice)
	}
	ports := map[string]int32{}
	for _, p := range slice.Ports {
		ports[*p.Name] = *p.Port
	}
	if ports["http"] != 8080 || ports["admin"] != 81 {
		t.Errorf("ports: %v", ports)
	}
	for _, e := range slice.Endpoints {
		if ptr.Deref(e.Zone, "") != "zone-1" || ptr.Deref(e.NodeName, "") != "n1" ||
			e.TargetRef.Kind != "Pod" {
			t.Errorf("unexpected endpoint: %+v", e)
		}
	}
	c.status("b", "10.0.0.2", true)
	c.slices("web", endpointSlicesWith(2, 2))
	if err := c.client.CoreV1().Pods(c.namespace).Delete(t.Context(), "a",
		metav1.DeleteOptions{GracePeriodSeconds: new(int64(30))}); err != nil {
		t.Fatal(err)
	}
	c.slices("web", func(list []discoveryv1.EndpointSlice) error {
		for _, s := range list {
			for _, e := range s.Endpoints {
				if e.TargetRef.Name == "a" && ptr.Deref(e.Conditions.Terminating, false) &&
					ptr.Deref(e.Conditions.Serving, false) && !ptr.Deref(e.Conditions.Ready, true) {
					return nil
				}
			}
		}
		return errors.New("no endpoint is terminating")
	})
}

// TestEndpointSlicesManyPods checks that slices are filled up to a hundred endpoints, that a slice
// that someone deletes comes back, and that nothing is lost when the server starts again.
func TestEndpointSlicesManyPods(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := startEndpointSlices(t, func(o *server.Options) { o.DataDir = dir })
	c.node("n1", "")
	c.service("web", func(s *corev1.ServiceSpec) { s.ClusterIP = corev1.ClusterIPNone })
	const n = 120
	for i := range n {
		c.pod(fmt.Sprintf("p%d", i), "n1", fmt.Sprintf("10.0.1.%d", i), true)
	}
	list := c.slices("web", endpointSlicesWith(n, n))
	if len(list) != 2 {
		t.Errorf("%d slices for %d pods", len(list), n)
	}
	if _, ok := list[0].Labels[corev1.IsHeadlessService]; !ok {
		t.Errorf("not marked as headless: %v", list[0].Labels)
	}
	if err := c.client.DiscoveryV1().EndpointSlices(c.namespace).Delete(t.Context(), list[0].Name,
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.slices("web", endpointSlicesWith(n, n))
	if err := c.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	c = startEndpointSlices(t, func(o *server.Options) { o.DataDir = dir })
	c.status("p7", "10.0.1.7", false)
	c.slices("web", endpointSlicesWith(n, n-1))
}

// noEndpointSlices is a check that there are no slices.
func noEndpointSlices(list []discoveryv1.EndpointSlice) error {
	if len(list) > 0 {
		return fmt.Errorf("has %d slices", len(list))
	}
	return nil
}

// TestEndpointSlicesRestart changes Services, pods and slices while the loop does not run.
func TestEndpointSlicesRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	configure := func(o *server.Options) { o.DataDir = dir }
	c := startEndpointSlices(t, configure)
	services := func() typedcorev1.ServiceInterface { return c.client.CoreV1().Services(c.namespace) }
	c.node("n1", "")
	for _, name := range []string{"web", "gone", "recreated", "overwritten"} {
		c.service(name, nil)
	}
	c.service("quiet", func(s *corev1.ServiceSpec) { s.Selector = map[string]string{"app": "none"} })
	c.pod("a", "n1", "10.0.0.1", true)
	c.pod("b", "n1", "10.0.0.2", true)
	for _, name := range []string{"web", "gone", "recreated", "overwritten"} {
		c.slices(name, endpointSlicesWith(2, 2))
	}
	quiet := c.slices("quiet", endpointSlicesWith(0, 0))[0]
	workloadtest.OK(t, c.Stop(t.Context()))

	off := servertest.Run(t, configure, servertest.WithoutControllers)
	c = &endpointSlices{t, off, workloadtest.Client(t, off), workloadtest.Namespace}
	c.status("a", "10.0.0.1", false)
	c.pod("c", "n1", "10.0.0.3", true)
	workloadtest.OK(t, services().Delete(t.Context(), "gone", metav1.DeleteOptions{}))
	workloadtest.OK(t, services().Delete(t.Context(), "recreated", metav1.DeleteOptions{}))
	recreated := c.service("recreated", func(s *corev1.ServiceSpec) {
		s.PublishNotReadyAddresses = true
	})
	workloadtest.Must(c.client.DiscoveryV1().EndpointSlices(c.namespace).Patch(t.Context(),
		c.slices("overwritten", endpointSlicesWith(2, 2))[0].Name, types.MergePatchType,
		[]byte(`{"endpoints":[{"addresses":["10.9.9.9"]}]}`), metav1.PatchOptions{}))(t)
	workloadtest.OK(t, off.Stop(t.Context()))

	c = startEndpointSlices(t, configure)
	c.slices("web", endpointSlicesWith(3, 2))
	c.slices("overwritten", endpointSlicesWith(3, 2))
	c.slices("gone", noEndpointSlices)
	c.slices("recreated", func(list []discoveryv1.EndpointSlice) error {
		for _, s := range list {
			if !metav1.IsControlledBy(&s, recreated) {
				return fmt.Errorf("the owners of %s are %v", s.Name, s.OwnerReferences)
			}
		}
		return endpointSlicesWith(3, 3)(list)
	})
	// A slice that the loop has not written since its start comes back as well.
	workloadtest.OK(t, c.client.DiscoveryV1().EndpointSlices(c.namespace).Delete(t.Context(),
		quiet.Name, metav1.DeleteOptions{}))
	if again := c.slices("quiet", endpointSlicesWith(0, 0))[0]; again.UID == quiet.UID {
		t.Error("the deleted slice is there")
	}
}

// TestEndpointSlicesRecreated replaces a Service by one with the same name at once, and deletes the
// namespace of a Service that has a finalizer.
func TestEndpointSlicesRecreated(t *testing.T) {
	t.Parallel()
	c := startEndpointSlices(t)
	c.node("n1", "")
	c.service("web", nil)
	c.pod("a", "n1", "10.0.0.1", true)
	c.slices("web", endpointSlicesWith(1, 1))
	workloadtest.OK(t, c.client.CoreV1().Services(c.namespace).Delete(t.Context(), "web",
		metav1.DeleteOptions{}))
	second := c.service("web", nil)
	c.slices("web", func(list []discoveryv1.EndpointSlice) error {
		if len(list) != 1 || !metav1.IsControlledBy(&list[0], second) {
			return errors.New("there are other slices than one of the second Service")
		}
		return endpointSlicesWith(1, 1)(list)
	})

	const dying = "dying"
	core, slices := c.client.CoreV1(), c.client.DiscoveryV1().EndpointSlices(dying)
	workloadtest.Must(core.Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: dying},
	}, metav1.CreateOptions{}))(t)
	workloadtest.Must(core.Services(dying).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Finalizers: []string{"example.com/wait"}},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80}},
		},
	}, metav1.CreateOptions{}))(t)
	await := func(what string, n int) {
		t.Helper()
		workloadtest.Await(t, what, func(ctx context.Context) (int, error) {
			list, err := slices.List(ctx, metav1.ListOptions{})
			if err != nil {
				return 0, err
			}
			endpoints, err := core.Endpoints(dying).List(ctx, metav1.ListOptions{})
			return len(list.Items) + len(endpoints.Items), err
		}, func(got int) bool { return got == n })
	}
	await("a slice and Endpoints", 2)
	workloadtest.OK(t, core.Namespaces().Delete(t.Context(), dying, metav1.DeleteOptions{}))
	await("nothing is left", 0)
	workloadtest.Must(core.Services(dying).Patch(t.Context(), "web", types.MergePatchType,
		[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}))(t)
	workloadtest.Until(t, func(ctx context.Context) string {
		_, err := core.Namespaces().Get(ctx, dying, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Sprintf("get the namespace: %v", err)
		}
		return ""
	})
}

// TestEndpointSlicesLateNode checks that a pod is not published before its node exists, and then
// is.
func TestEndpointSlicesLateNode(t *testing.T) {
	t.Parallel()
	c := startEndpointSlices(t)
	c.node("n1", "")
	c.service("web", nil)
	c.service("all", func(s *corev1.ServiceSpec) { s.PublishNotReadyAddresses = true })
	c.pod("a", "n1", "10.0.0.1", true)
	c.pod("b", "late", "10.0.0.2", false)
	c.slices("all", endpointSlicesWith(2, 2))
	c.slices("web", endpointSlicesWith(1, 1))
	c.node("late", "zone-2")
	c.slices("web", endpointSlicesWith(2, 1))
}

// TestEndpointSlicesLeftAlone checks that services that have no pods get no slices.
func TestEndpointSlicesLeftAlone(t *testing.T) {
	t.Parallel()
	client, namespace := shared(t)
	c := &endpointSlices{t, nil, client, namespace}
	c.service("manual", func(s *corev1.ServiceSpec) { s.Selector = nil })
	c.service("elsewhere", func(s *corev1.ServiceSpec) {
		s.Type, s.ExternalName = corev1.ServiceTypeExternalName, "example.com"
	})
	c.service("last", nil)
	c.slices("last", endpointSlicesWith(0, 0))
	for _, name := range []string{"manual", "elsewhere"} {
		c.slices(name, noEndpointSlices)
	}
}
