package extension

import (
	"bytes"
	"fmt"
	"maps"
	"net"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/yaml"
)

// Registration is what makes a control plane send the requests for API groups to an extension API
// server. See [Register].
type Registration struct {
	// Service is how the aggregator finds the server.
	Service *corev1.Service
	// EndpointSlice has the address of the server. It is nil if the Service selects pods, or if it
	// has the address itself.
	EndpointSlice *discoveryv1.EndpointSlice
	// APIServices has one object for each group and version, with the authority of the server's
	// serving certificate.
	APIServices []*apiregistrationv1.APIService

	ready <-chan struct{} // see Server.Ready; nil if it is not known
}

const (
	servicePort = 443
	portName    = "https"

	// Priorities only order groups and versions with equal names and kinds. These are those of most
	// extension API servers.
	groupPriority = 1000
	topPriority   = 100
)

// Registration returns the objects that register the server with a control plane.
//
// With Options.Selector, the Service selects pods. With an IP address, it is accompanied by an
// EndpointSlice. Kubernetes allows no loopback addresses and no DNS names there: then the Service
// is of the type ExternalName, which only control planes on the same machine, or with the same DNS,
// can resolve.
func (s *Server) Registration() *Registration {
	o := &s.options
	port := int32(s.listener.Addr().(*net.TCPAddr).Port)
	r := &Registration{ready: s.ready, Service: &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: s.meta(o.Name),
		Spec: corev1.ServiceSpec{
			Selector: maps.Clone(o.Selector),
			Ports: []corev1.ServicePort{{
				Name: portName, Protocol: corev1.ProtocolTCP,
				Port: servicePort, TargetPort: intstr.FromInt32(port),
			}},
		},
	}}
	reference := apiregistrationv1.ServiceReference{
		Namespace: o.Namespace, Name: o.Name, Port: new(int32(servicePort)),
	}
	switch ip := net.ParseIP(s.host()); {
	case len(o.Selector) > 0:
	case ip == nil || ip.IsLoopback():
		r.Service.Spec = corev1.ServiceSpec{
			Type: corev1.ServiceTypeExternalName, ExternalName: externalName(s.host(), ip),
		}
		reference.Port = new(port)
	default:
		r.EndpointSlice = s.endpointSlice(ip, port)
	}
	for _, g := range o.Groups {
		for i, v := range g.Versions {
			if v.OffByDefault {
				continue
			}
			r.APIServices = append(r.APIServices, &apiregistrationv1.APIService{
				TypeMeta: metav1.TypeMeta{
					APIVersion: apiregistrationv1.SchemeGroupVersion.String(), Kind: "APIService",
				},
				ObjectMeta: metav1.ObjectMeta{
					Name: v.Version + "." + g.Name, Labels: s.labels(),
				},
				Spec: apiregistrationv1.APIServiceSpec{
					Service: reference.DeepCopy(),
					Group:   g.Name, Version: v.Version,
					CABundle:             bytes.TrimSpace(s.certs.CABundle()),
					GroupPriorityMinimum: groupPriority,
					VersionPriority:      int32(max(topPriority-i, 1)),
				},
			})
		}
	}
	return r
}

// externalName returns a host as the name of a Service of type ExternalName. An IPv6 address is not
// one.
func externalName(host string, ip net.IP) string {
	if ip != nil && ip.To4() == nil {
		return "localhost"
	}
	return host
}

func (s *Server) labels() map[string]string {
	return map[string]string{"app.kubernetes.io/name": s.options.Name}
}

func (s *Server) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: s.options.Namespace, Labels: s.labels()}
}

func (s *Server) endpointSlice(ip net.IP, port int32) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{
			APIVersion: discoveryv1.SchemeGroupVersion.String(), Kind: "EndpointSlice",
		},
		ObjectMeta:  s.meta(s.options.Name),
		AddressType: discoveryv1.AddressTypeIPv6,
		Endpoints: []discoveryv1.Endpoint{{
			Addresses:  []string{ip.String()},
			Conditions: discoveryv1.EndpointConditions{Ready: new(true)},
		}},
		Ports: []discoveryv1.EndpointPort{{
			Name: new(portName), Protocol: new(corev1.ProtocolTCP), Port: new(port),
		}},
	}
	if ip.To4() != nil {
		slice.AddressType = discoveryv1.AddressTypeIPv4
	}
	slice.Labels[discoveryv1.LabelServiceName] = s.options.Name
	return slice
}

// objects returns all objects, in the order in which to create them.
func (r *Registration) objects() []runtime.Object {
	objects := []runtime.Object{r.Service}
	if r.EndpointSlice != nil {
		objects = append(objects, r.EndpointSlice)
	}
	for _, a := range r.APIServices {
		objects = append(objects, a)
	}
	return objects
}

// YAML returns the objects as manifests for kubectl apply.
func (r *Registration) YAML() ([]byte, error) {
	var manifests [][]byte
	for _, obj := range r.objects() {
		u, err := wanted(obj)
		if err != nil {
			return nil, err
		}
		data, err := yaml.Marshal(u.Object)
		if err != nil {
			return nil, fmt.Errorf("write %s as YAML: %w", u.GetName(), err)
		}
		manifests = append(manifests, data)
	}
	return bytes.Join(manifests, []byte("---\n")), nil
}
