package kubernetesservice

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Objects are the objects of a server that has its etcd to itself. Endpoints and Slice are nil if
// other hosts cannot reach the server.
type Objects struct {
	// Service has its cluster IP, so the address must be allocated to it.
	Service *corev1.Service
	// ServiceFields are the fields of the service that its creator owns, in the format FieldsV1.
	ServiceFields string
	Endpoints     *corev1.Endpoints
	Slice         *discoveryv1.EndpointSlice
}

// FirstObjects returns the objects that [Controller.Reconcile] makes in an empty etcd.
func (o Options) FirstObjects() Objects {
	objects := Objects{Service: o.service(), ServiceFields: serviceFields}
	spec := &objects.Service.Spec
	spec.ClusterIPs = []string{spec.ClusterIP}
	spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
	if o.ServiceIP.Is6() {
		spec.IPFamilies[0] = corev1.IPv6Protocol
	}
	if o.reachable() {
		addresses := []string{o.Address.String()}
		objects.Endpoints, objects.Slice = o.endpoints(addresses), o.slice(addresses)
	}
	return objects
}

// reachable reports whether other hosts can reach the server.
func (o Options) reachable() bool { return o.Address.IsValid() && !o.Address.IsLoopback() }

func (o Options) service() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Name: Name, Namespace: metav1.NamespaceDefault,
			Labels: map[string]string{"provider": "kubernetes", "component": "apiserver"},
		},
		Spec: corev1.ServiceSpec{
			Type:            corev1.ServiceTypeClusterIP,
			ClusterIP:       o.ServiceIP.String(),
			IPFamilyPolicy:  new(corev1.IPFamilyPolicySingleStack),
			SessionAffinity: corev1.ServiceAffinityNone,
			Ports: []corev1.ServicePort{{
				Name:       portName,
				Protocol:   corev1.ProtocolTCP,
				Port:       ServicePort,
				TargetPort: intstr.FromInt32(o.Port),
			}},
		},
	}
}

// serviceFields are the fields that service sets, and their defaults.
var serviceFields = fmt.Sprintf(
	`{"f:metadata":{"f:labels":{".":{},"f:component":{},"f:provider":{}}},`+
		`"f:spec":{"f:clusterIP":{},"f:internalTrafficPolicy":{},"f:ipFamilyPolicy":{},`+
		`"f:ports":{".":{},"k:{\"port\":%d,\"protocol\":\"TCP\"}":{".":{},"f:name":{},`+
		`"f:port":{},"f:protocol":{},"f:targetPort":{}}},"f:sessionAffinity":{},"f:type":{}}}`,
	ServicePort)

func (o Options) endpoints(addresses []string) *corev1.Endpoints {
	e := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{
		Name:      Name,
		Namespace: metav1.NamespaceDefault,
		Labels:    map[string]string{skipMirror: "true"},
	}}
	if len(addresses) == 0 {
		return e
	}
	subset := corev1.EndpointSubset{Ports: []corev1.EndpointPort{
		{Name: portName, Port: o.Port, Protocol: corev1.ProtocolTCP},
	}}
	for _, a := range addresses {
		subset.Addresses = append(subset.Addresses, corev1.EndpointAddress{IP: a})
	}
	e.Subsets = []corev1.EndpointSubset{subset}
	return e
}

func (o Options) slice(addresses []string) *discoveryv1.EndpointSlice {
	addressType := discoveryv1.AddressTypeIPv4
	if o.Address.Is6() {
		addressType = discoveryv1.AddressTypeIPv6
	}
	wanted := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: Name, Namespace: metav1.NamespaceDefault,
			Labels: map[string]string{discoveryv1.LabelServiceName: Name},
		},
		AddressType: addressType,
		Ports: []discoveryv1.EndpointPort{
			{Name: new(portName), Port: new(o.Port), Protocol: new(corev1.ProtocolTCP)},
		},
	}
	for _, a := range addresses {
		if addr, err := netip.ParseAddr(a); err == nil &&
			addr.Is6() == (addressType == discoveryv1.AddressTypeIPv6) {
			wanted.Endpoints = append(wanted.Endpoints, discoveryv1.Endpoint{
				Addresses: []string{a}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)},
			})
		}
	}
	return wanted
}
