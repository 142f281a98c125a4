package looptest

import (
	"context"
	"fmt"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/controllers/network/endpoints"
	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
	"github.com/kinproc/kinproc/server/servertest"
)

// endpointsAddresses are the endpoints of a service by port: the IPs that are ready, and those that
// are not.
type endpointsAddresses map[int32][2][]string

// awaitEndpoints waits for the Endpoints of a service. None are wanted if want is nil.
func awaitEndpoints(
	t *testing.T, client kubernetes.Interface, name string, want endpointsAddresses,
) *corev1.Endpoints {
	t.Helper()
	var found *corev1.Endpoints
	workloadtest.Until(t, func(ctx context.Context) string {
		e, err := client.CoreV1().Endpoints(workloadtest.Namespace).Get(ctx, name, metav1.GetOptions{})
		if want == nil && apierrors.IsNotFound(err) {
			return ""
		}
		if err != nil {
			return err.Error()
		}
		found = e
		got := endpointsAddresses{}
		for _, s := range e.Subsets {
			var ips [2][]string
			for _, a := range s.Addresses {
				ips[0] = append(ips[0], a.IP)
			}
			for _, a := range s.NotReadyAddresses {
				ips[1] = append(ips[1], a.IP)
			}
			for _, p := range s.Ports {
				got[p.Port] = ips
			}
		}
		if want == nil || !reflect.DeepEqual(got, want) {
			return fmt.Sprintf("%s: want %v, have %+v", name, want, e.Subsets)
		}
		return ""
	})
	return found
}

func TestEndpoints(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	start := func() (*server.Server, kubernetes.Interface) {
		s := servertest.Run(t, func(o *server.Options) {
			o.DataDir = dir
			o.Controllers = []string{endpoints.Name, "serviceaccount-controller"}
		})
		return s, kubernetes.NewForConfigOrDie(s.RESTConfig())
	}
	s, client := start()
	ctx := t.Context()
	status := func(name, ip string, ready corev1.ConditionStatus) {
		t.Helper()
		_, err := client.CoreV1().Pods(workloadtest.Namespace).Patch(ctx, name,
			types.StrategicMergePatchType, fmt.Appendf(nil, `{"status":{"phase":"Running","podIP":%q,
			"podIPs":[{"ip":%[1]q}],"conditions":[{"type":"Ready","status":%q}]}}`, ip, ready),
			metav1.PatchOptions{}, "status")
		if err != nil {
			t.Fatal(err)
		}
	}
	pod := func(name string, port int32, ip string, ready corev1.ConditionStatus) {
		t.Helper()
		_, err := client.CoreV1().Pods(workloadtest.Namespace).Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "web"}},
			Spec: corev1.PodSpec{
				NodeName: "n", AutomountServiceAccountToken: new(false),
				Containers: []corev1.Container{{
					Name: "c", Image: "i",
					Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: port}},
				}},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		status(name, ip, ready)
	}
	service := func(name string, change func(*corev1.ServiceSpec)) {
		t.Helper()
		s := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"team": "a"}},
			Spec: corev1.ServiceSpec{
				Selector: map[string]string{"app": "web"},
				Ports:    []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromString("web")}},
			},
		}
		change(&s.Spec)
		if _, err := client.CoreV1().Services(workloadtest.Namespace).Create(ctx, s,
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	// Endpoints can be older than their Service.
	if _, err := client.CoreV1().Endpoints(workloadtest.Namespace).Create(ctx, &corev1.Endpoints{
		ObjectMeta: metav1.ObjectMeta{Name: "early"},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	service("web", func(*corev1.ServiceSpec) {})
	service("all", func(s *corev1.ServiceSpec) {
		s.PublishNotReadyAddresses, s.ClusterIP = true, corev1.ClusterIPNone
	})
	awaitEndpoints(t, client, "web", endpointsAddresses{})
	pod("a", 8080, "10.0.0.2", corev1.ConditionTrue)
	pod("b", 8080, "10.0.0.1", corev1.ConditionTrue)
	pod("c", 8081, "10.0.0.3", corev1.ConditionFalse)
	web := awaitEndpoints(t, client, "web", endpointsAddresses{
		8080: {{"10.0.0.1", "10.0.0.2"}, nil}, 8081: {nil, {"10.0.0.3"}},
	})
	if web.Labels["team"] != "a" ||
		web.Labels["endpoints.kubernetes.io/managed-by"] != "endpoint-controller" {
		t.Errorf("unexpected metadata: %+v", web.ObjectMeta)
	}
	all := awaitEndpoints(t, client, "all", endpointsAddresses{
		8080: {{"10.0.0.1", "10.0.0.2"}, nil}, 8081: {{"10.0.0.3"}, nil},
	})
	awaitEndpoints(t, client, "early", endpointsAddresses{})
	if _, ok := all.Labels[corev1.IsHeadlessService]; !ok {
		t.Errorf("not marked as headless: %v", all.Labels)
	}

	// Someone else overwrites the endpoints.
	web.Subsets = nil
	if _, err := client.CoreV1().Endpoints(workloadtest.Namespace).Update(ctx, web,
		metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitEndpoints(t, client, "web", endpointsAddresses{
		8080: {{"10.0.0.1", "10.0.0.2"}, nil}, 8081: {nil, {"10.0.0.3"}},
	})

	// The loop catches up with what happened while it did not run.
	service("gone", func(*corev1.ServiceSpec) {})
	service("recreated", func(*corev1.ServiceSpec) {})
	service("unselected", func(*corev1.ServiceSpec) {})
	ready := endpointsAddresses{8080: {{"10.0.0.1", "10.0.0.2"}, nil}, 8081: {nil, {"10.0.0.3"}}}
	for _, name := range []string{"gone", "recreated", "unselected"} {
		awaitEndpoints(t, client, name, ready)
	}
	if err := s.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	off := servertest.Run(t, func(o *server.Options) {
		o.DataDir, o.Controllers = dir, []string{"serviceaccount-controller"}
	})
	client = kubernetes.NewForConfigOrDie(off.RESTConfig())
	remove := func(name string) {
		t.Helper()
		if err := client.CoreV1().Services(workloadtest.Namespace).Delete(ctx, name,
			metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	patch := func(name, patch string) {
		t.Helper()
		if _, err := client.CoreV1().Services(workloadtest.Namespace).Patch(ctx, name,
			types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	status("c", "10.0.0.3", corev1.ConditionTrue)
	patch("all", `{"metadata":{"labels":{"team":"b"}}}`)
	patch("unselected", `{"spec":{"selector":null}}`)
	remove("gone")
	remove("recreated")
	service("recreated", func(s *corev1.ServiceSpec) { s.Selector["app"] = "none" })
	if _, err := client.CoreV1().Endpoints(workloadtest.Namespace).Create(ctx, &corev1.Endpoints{
		ObjectMeta: metav1.ObjectMeta{Name: "by-hand"},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := off.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	_, client = start()
	all3 := endpointsAddresses{8080: {{"10.0.0.1", "10.0.0.2"}, nil}, 8081: {{"10.0.0.3"}, nil}}
	awaitEndpoints(t, client, "web", all3)
	awaitEndpoints(t, client, "gone", nil)
	awaitEndpoints(t, client, "recreated", endpointsAddresses{})
	workloadtest.Await(t, "the labels of the Service", func(
		ctx context.Context,
	) (*corev1.Endpoints, error) {
		return client.CoreV1().Endpoints(workloadtest.Namespace).Get(ctx, "all", metav1.GetOptions{})
	}, func(e *corev1.Endpoints) bool { return e.Labels["team"] == "b" })

	// A Service is replaced at once.
	remove("web")
	service("web", func(s *corev1.ServiceSpec) { s.Selector["app"] = "none" })
	awaitEndpoints(t, client, "web", endpointsAddresses{})
	remove("web")
	awaitEndpoints(t, client, "web", nil)
	// Nobody has touched what is not the loop's.
	awaitEndpoints(t, client, "unselected", ready)
	awaitEndpoints(t, client, "by-hand", endpointsAddresses{})
}
