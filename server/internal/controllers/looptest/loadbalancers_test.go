package looptest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
	"github.com/kinproc/kinproc/server/servertest"
)

func loadBalancersRun(t *testing.T, addresses string) (*server.Server, kubernetes.Interface) {
	t.Helper()
	s := servertest.Run(t, servertest.Workloads, func(o *server.Options) {
		o.LoadBalancerRange = addresses
	})
	return s, workloadtest.Client(t, s)
}

func loadBalancersCreate(
	t *testing.T, client kubernetes.Interface, name string, change ...func(*corev1.Service),
) {
	t.Helper()
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}},
		},
	}
	for _, c := range change {
		c(s)
	}
	workloadtest.Must(client.CoreV1().Services("default").Create(t.Context(), s,
		metav1.CreateOptions{}))(t)
}

// loadBalancersAwait waits until a Service has an address, and returns it.
func loadBalancersAwait(t *testing.T, client kubernetes.Interface, name string) string {
	t.Helper()
	s := workloadtest.Await(t, "the address of "+name,
		func(ctx context.Context) (*corev1.Service, error) {
			return client.CoreV1().Services("default").Get(ctx, name, metav1.GetOptions{})
		}, func(s *corev1.Service) bool { return len(s.Status.LoadBalancer.Ingress) > 0 })
	return s.Status.LoadBalancer.Ingress[0].IP
}

// TestLoadBalancers has Services that get addresses until none is left, and one that waits for it.
func TestLoadBalancers(t *testing.T) {
	t.Parallel()
	_, client := loadBalancersRun(t, "203.0.113.0/29")
	loadBalancersCreate(t, client, "asks", func(s *corev1.Service) {
		s.Spec.LoadBalancerIP = "203.0.113.5"
	})
	if got := loadBalancersAwait(t, client, "asks"); got != "203.0.113.5" {
		t.Errorf("the Service that asks for 203.0.113.5 has %s", got)
	}
	loadBalancersCreate(t, client, "other-class", func(s *corev1.Service) {
		s.Spec.LoadBalancerClass = ptr.To("example.com/other")
	})
	seen := map[string]bool{"203.0.113.5": true}
	for i := range 4 { // .1 is for Ingresses, and .7 for broadcasts
		name := fmt.Sprint("s", i)
		loadBalancersCreate(t, client, name)
		got := loadBalancersAwait(t, client, name)
		if seen[got] || !strings.HasPrefix(got, "203.0.113.") {
			t.Errorf("%s has %s; others have %v", name, got, seen)
		}
		seen[got] = true
	}
	loadBalancersCreate(t, client, "late")
	workloadtest.AwaitEvent(t, client, "default", "late", "SyncLoadBalancerFailed")
	workloadtest.OK(t, client.CoreV1().Services("default").Delete(t.Context(), "asks",
		metav1.DeleteOptions{}))
	if got := loadBalancersAwait(t, client, "late"); got != "203.0.113.5" {
		t.Errorf("the Service that waited has %s", got)
	}
	other := workloadtest.Must(client.CoreV1().Services("default").Get(t.Context(), "other-class",
		metav1.GetOptions{}))(t)
	if len(other.Status.LoadBalancer.Ingress) > 0 {
		t.Errorf("a Service of another class has %v", other.Status.LoadBalancer)
	}
}

// TestLoadBalancersIngress has Ingresses of kinproc's class, and of another one.
func TestLoadBalancersIngress(t *testing.T) {
	t.Parallel()
	_, client := loadBalancersRun(t, "192.0.2.0/24")
	create := func(name, class string) {
		workloadtest.Must(client.NetworkingV1().Ingresses("default").Create(t.Context(),
			&networkingv1.Ingress{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec: networkingv1.IngressSpec{
					IngressClassName: &class,
					DefaultBackend: &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{
						Name: "web", Port: networkingv1.ServiceBackendPort{Number: 80},
					}},
				},
			}, metav1.CreateOptions{}))(t)
	}
	workloadtest.Must(client.NetworkingV1().IngressClasses().Create(t.Context(),
		&networkingv1.IngressClass{
			ObjectMeta: metav1.ObjectMeta{Name: "nginx"},
			Spec:       networkingv1.IngressClassSpec{Controller: "k8s.io/ingress-nginx"},
		}, metav1.CreateOptions{}))(t)
	create("other", "nginx")
	create("own", "kinproc")
	get := func(name string) func(ctx context.Context) (*networkingv1.Ingress, error) {
		return func(ctx context.Context) (*networkingv1.Ingress, error) {
			return client.NetworkingV1().Ingresses("default").Get(ctx, name, metav1.GetOptions{})
		}
	}
	own := workloadtest.Await(t, "the address of own", get("own"), func(i *networkingv1.Ingress) bool {
		return len(i.Status.LoadBalancer.Ingress) > 0
	})
	if got := own.Status.LoadBalancer.Ingress[0].IP; got != "192.0.2.1" {
		t.Errorf("the address is %s", got)
	}
	class := workloadtest.Must(client.NetworkingV1().IngressClasses().Get(t.Context(), "kinproc",
		metav1.GetOptions{}))(t)
	if class.Spec.Controller != "kinproc.dev/ingress" {
		t.Errorf("the class has the controller %s", class.Spec.Controller)
	}
	if other := workloadtest.Must(get("other")(t.Context()))(t); len(
		other.Status.LoadBalancer.Ingress) > 0 {
		t.Errorf("an Ingress of another class has %v", other.Status.LoadBalancer)
	}
}

// loadBalancersGatewayCRDs are as much of the Gateway API as a Gateway needs.
const loadBalancersGatewayCRDs = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: gateways.gateway.networking.k8s.io
  annotations: {api-approved.kubernetes.io: https://github.com/kubernetes-sigs/gateway-api/pull/1}
spec:
  group: gateway.networking.k8s.io
  names: {kind: Gateway, plural: gateways, singular: gateway, listKind: GatewayList}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: gatewayclasses.gateway.networking.k8s.io
  annotations: {api-approved.kubernetes.io: https://github.com/kubernetes-sigs/gateway-api/pull/1}
spec:
  group: gateway.networking.k8s.io
  names: {kind: GatewayClass, plural: gatewayclasses, singular: gatewayclass, listKind: GatewayClassList}
  scope: Cluster
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// TestLoadBalancersGateway has a Gateway of kinproc's class.
func TestLoadBalancersGateway(t *testing.T) {
	t.Parallel()
	s, _ := loadBalancersRun(t, "192.0.2.0/24")
	servertest.Apply(t, s, "default", servertest.YAML(loadBalancersGatewayCRDs))
	servertest.Apply(t, s, "default", servertest.YAML(`
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web}
spec:
  gatewayClassName: kinproc
  listeners: [{name: http, port: 80, protocol: HTTP}]
`))
	client := workloadtest.Must(dynamic.NewForConfig(s.RESTConfig()))(t)
	version := schema.GroupVersion{Group: "gateway.networking.k8s.io", Version: "v1"}
	web := workloadtest.Await(t, "the address of the Gateway",
		func(ctx context.Context) (*unstructured.Unstructured, error) {
			return client.Resource(version.WithResource("gateways")).Namespace("default").Get(ctx, "web",
				metav1.GetOptions{})
		}, func(g *unstructured.Unstructured) bool { return g.Object["status"] != nil })
	status := fmt.Sprint(web.Object["status"])
	for _, want := range []string{"192.0.2.1", "type:Programmed", "name:http"} {
		if !strings.Contains(status, want) {
			t.Errorf("%s is not in %s", want, status)
		}
	}
	workloadtest.Await(t, "the class is accepted",
		func(ctx context.Context) (*unstructured.Unstructured, error) {
			return client.Resource(version.WithResource("gatewayclasses")).Get(ctx, "kinproc",
				metav1.GetOptions{})
		}, func(g *unstructured.Unstructured) bool {
			return strings.Contains(fmt.Sprint(g.Object["status"]), "type:Accepted")
		})
}
