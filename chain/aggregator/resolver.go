package aggregator

import (
	"net/url"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/util/proxy"
	corelisters "k8s.io/client-go/listers/core/v1"
)

// Resolver finds the address behind a Service, for extension API servers, admission webhooks and conversion webhooks alike:
//
//   - of type ExternalName: that name. "localhost" leads to a server on the developer's machine;
//   - with endpoint slices: one of the ready endpoints, on whatever address, since nobody routes cluster IPs here;
//   - otherwise the cluster IP, as kube-apiserver does, for those who have a route to it.
type Resolver struct {
	Services       corelisters.ServiceLister
	EndpointSlices proxy.EndpointSliceGetter
	// EndpointsOnly never resolves to a cluster IP (kube-apiserver's --enable-aggregator-routing).
	EndpointsOnly bool
	// Self is where the service default/kubernetes leads to: this server.
	Self *url.URL
}

// The service of the API server itself.
const (
	selfName = "kubernetes"
	selfPort = 443
)

// ResolveEndpoint implements the ServiceResolver of k8s.io/kube-aggregator and that of k8s.io/apiserver/pkg/util/webhook. The caller may
// change the URL.
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
	// Slices without a ready endpoint mean that nobody is there, not that the cluster IP would do.
	if len(slices) > 0 || r.EndpointsOnly || service.Spec.ClusterIP == corev1.ClusterIPNone {
		return proxy.ResolveEndpoint(r.Services, r.EndpointSlices, namespace, name, port)
	}
	return proxy.ResolveCluster(r.Services, namespace, name, port)
}
