package endpointslices_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/controllers/endpoints"
	"github.com/kinproc/kinproc/server/internal/controllers/endpointslices"
	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
)

// patience is far longer than anything here takes.
const patience = 30 * time.Second

// cluster is a control plane with a node, whose pods a test runs by hand.
type cluster struct {
	*testing.T
	*server.Server
	client kubernetes.Interface
}

func start(t *testing.T, configure ...func(*server.Options)) *cluster {
	t.Helper()
	s, client := workloadtest.Run(t, []string{endpointslices.Name, endpoints.Name}, configure...)
	return &cluster{t, s, client}
}

func (c *cluster) node(name, zone string) {
	c.Helper()
	workloadtest.Must(c.client.CoreV1().Nodes().Create(c.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{corev1.LabelTopologyZone: zone},
		},
	}, metav1.CreateOptions{}))(c.T)
}

func (c *cluster) service(name string, change func(*corev1.ServiceSpec)) *corev1.Service {
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
	return workloadtest.Must(c.client.CoreV1().Services("default").Create(c.Context(), s,
		metav1.CreateOptions{}))(c.T)
}

// pod creates a pod of the application on a node, with an address once it runs.
func (c *cluster) pod(name, node, ip string, ready bool) {
	c.Helper()
	pods := c.client.CoreV1().Pods("default")
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

func (c *cluster) status(name, ip string, ready bool) {
	c.Helper()
	status := map[bool]string{true: "True", false: "False"}[ready]
	workloadtest.Must(c.client.CoreV1().Pods("default").Patch(c.Context(), name,
		types.StrategicMergePatchType, fmt.Appendf(nil, `{"status":{"phase":"Running","podIP":%q,
		"podIPs":[{"ip":%[1]q}],"conditions":[{"type":"Ready","status":%q}]}}`, ip, status),
		metav1.PatchOptions{}, "status"))(c.T)
}

// slices returns the slices of a service once check accepts them.
func (c *cluster) slices(
	service string, check func([]discoveryv1.EndpointSlice) error,
) []discoveryv1.EndpointSlice {
	c.Helper()
	var last error
	var list *discoveryv1.EndpointSliceList
	err := wait.PollUntilContextTimeout(c.Context(), 2*time.Millisecond, patience, true,
		func(ctx context.Context) (bool, error) {
			var err error
			list, err = c.client.DiscoveryV1().EndpointSlices("default").List(ctx, metav1.ListOptions{
				LabelSelector: discoveryv1.LabelServiceName + "=" + service,
			})
			if err != nil {
				return false, err
			}
			last = check(list.Items)
			return last == nil, nil
		})
	if err != nil {
		c.Fatalf("%s: %v: %v; %+v", service, err, last, list)
	}
	return list.Items
}

// total returns a check of the number of endpoints, and of those that are ready.
func total(all, ready int) func([]discoveryv1.EndpointSlice) error {
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

func TestService(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.node("n1", "zone-1")
	s := c.service("web", nil)
	empty := c.slices("web", total(0, 0))
	c.pod("a", "n1", "10.0.0.1", true)
	c.pod("b", "n1", "10.0.0.2", false)
	list := c.slices("web", total(2, 1))
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
	c.slices("web", total(2, 2))
	if err := c.client.CoreV1().Pods("default").Delete(t.Context(), "a",
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

// TestManyPods checks that slices are filled up to a hundred endpoints, that a slice that someone
// deletes comes back, and that nothing is lost when the server starts again.
func TestManyPods(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := start(t, func(o *server.Options) { o.DataDir = dir })
	c.node("n1", "")
	c.service("web", func(s *corev1.ServiceSpec) { s.ClusterIP = corev1.ClusterIPNone })
	const n = 120
	for i := range n {
		c.pod(fmt.Sprintf("p%d", i), "n1", fmt.Sprintf("10.0.1.%d", i), true)
	}
	list := c.slices("web", total(n, n))
	if len(list) != 2 {
		t.Errorf("%d slices for %d pods", len(list), n)
	}
	if _, ok := list[0].Labels[corev1.IsHeadlessService]; !ok {
		t.Errorf("not marked as headless: %v", list[0].Labels)
	}
	if err := c.client.DiscoveryV1().EndpointSlices("default").Delete(t.Context(), list[0].Name,
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.slices("web", total(n, n))
	if err := c.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	c = start(t, func(o *server.Options) { o.DataDir = dir })
	c.status("p7", "10.0.1.7", false)
	c.slices("web", total(n, n-1))
}

// TestLateNode checks that a pod is not published before its node exists, and then is.
func TestLateNode(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.node("n1", "")
	c.service("web", nil)
	c.service("all", func(s *corev1.ServiceSpec) { s.PublishNotReadyAddresses = true })
	c.pod("a", "n1", "10.0.0.1", true)
	c.pod("b", "late", "10.0.0.2", false)
	c.slices("all", total(2, 2))
	c.slices("web", total(1, 1))
	c.node("late", "zone-2")
	c.slices("web", total(2, 1))
}

// TestLeftAlone checks that services that have no pods get no slices.
func TestLeftAlone(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.service("manual", func(s *corev1.ServiceSpec) { s.Selector = nil })
	c.service("elsewhere", func(s *corev1.ServiceSpec) {
		s.Type, s.ExternalName = corev1.ServiceTypeExternalName, "example.com"
	})
	c.service("last", nil)
	c.slices("last", total(0, 0))
	for _, name := range []string{"manual", "elsewhere"} {
		c.slices(name, func(list []discoveryv1.EndpointSlice) error {
			if len(list) > 0 {
				return errors.New("has slices")
			}
			return nil
		})
	}
}
