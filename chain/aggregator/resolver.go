package aggregator

import (
	"net/url"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/util/proxy"
	corelisters "k8s.io/client-go/listers/core/v1"
)

// Resolver finds the address behind a Service, for extension API servers, admission webhooks and
// conversion webhooks:
//
//   - of type ExternalName: the external name. "localhost" leads to a server on the developer's
//     machine;
//   - with endpoint slices: one of the ready endpoints, at any address, because cluster IPs are not
//     routed here;
//   - otherwise: the cluster IP, as in kube-apiserver, for setups that have a route to it.
type Resolver struct {
	Services       corelisters.ServiceLister
	EndpointSlices proxy.EndpointSliceGetter
	// EndpointsOnly disables cluster IPs (kube-apiserver's --enable-aggregator-routing).
	EndpointsOnly bool
	// Self is the URL of this server, to which the service default/kubernetes resolves.
	Self *url.URL
}

// Name and port of the API server's own service.
const (
	selfName = "kubernetes"
	selfPort = 443
)

// ResolveEndpoint implements ServiceResolver of k8s.io/kube-aggregator and of
// k8s.io/apiserver/pkg/util/webhook. The caller may change the returned URL.
func (r *Resolver) ResolveEndpoint(namespace, name string, port int32) (*url.URL, error) {
	if namespace == metav1.NamespaceDefault && name == selfName && port == selfPort {
		self := *r.Self
		return &self, nil
	}
	service, err := r.Services.Services(namespace).Get(name)
	if err != nil {
		return nil, err
	}
	if service.Spec.Type == corev1.ServiceTypeExternalName {
		return proxy.ResolveCluster(r.Services, namespace, name, port)
	}
	slices, err := r.EndpointSlices.GetEndpointSlices(namespace, name)
	if err != nil {
		return nil, err
	}
	// If there are slices but no ready endpoint, nothing is listening behind the cluster IP either.
	if len(slices) > 0 || r.EndpointsOnly || service.Spec.ClusterIP == corev1.ClusterIPNone {
		return proxy.ResolveEndpoint(r.Services, r.EndpointSlices, namespace, name, port)
	}
	return proxy.ResolveCluster(r.Services, namespace, name, port)
}
