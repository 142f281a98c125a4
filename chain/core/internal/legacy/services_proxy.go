package legacy

import (
	"context"
	"crypto/tls"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	utilproxy "k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/apimachinery/pkg/util/sets"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/client-go/kubernetes"
	netutils "k8s.io/utils/net"
)

// serviceProxy implements services/proxy. It connects to a ready endpoint of the service, if this
// process can reach one.
type serviceProxy struct {
	services *genericregistry.Store
	client   kubernetes.Interface
	dialer   proxyDialer
	// kubelet may be nil.
	kubelet Kubelet
}

var (
	_ rest.Connecter       = &serviceProxy{}
	_ rest.StorageMetadata = &serviceProxy{}
)

// registerServiceProxyOptions registers the conversion from query parameters to
// ServiceProxyOptions.
func registerServiceProxyOptions(scheme *runtime.Scheme) error {
	return scheme.AddConversionFunc((*url.Values)(nil), (*corev1.ServiceProxyOptions)(nil),
		func(in, out any, _ conversion.Scope) error {
			out.(*corev1.ServiceProxyOptions).Path = in.(*url.Values).Get("path")
			return nil
		})
}

func (p *serviceProxy) New() runtime.Object { return &corev1.ServiceProxyOptions{} }

// Destroy does nothing: the main resource owns the store.
func (p *serviceProxy) Destroy() {}

func (p *serviceProxy) ConnectMethods() []string {
	return []string{
		http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodHead, http.MethodOptions,
	}
}

func (p *serviceProxy) NewConnectOptions() (runtime.Object, bool, string) {
	return &corev1.ServiceProxyOptions{}, true, "path"
}

func (p *serviceProxy) ProducesMIMETypes(string) []string { return nil }
func (p *serviceProxy) ProducesObject(string) any         { return nil }

func (p *serviceProxy) Connect(
	ctx context.Context, id string, options runtime.Object, responder rest.Responder,
) (http.Handler, error) {
	path := options.(*corev1.ServiceProxyOptions).Path
	if handler := p.standIn(ctx, id, path, responder); handler != nil {
		return handler, nil
	}
	location, err := p.locate(ctx, id)
	if err != nil {
		return nil, err
	}
	location.Path = utilnet.JoinPreservingTrailingSlash(location.Path, path)
	// There is no name to check the certificate of an endpoint against. As in kube-apiserver, TLS
	// only provides secrecy here.
	transport := p.dialer.transport()
	transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true}
	handler := utilproxy.NewUpgradeAwareHandler(location, utilnet.SetTransportDefaults(transport),
		true, false, utilproxy.NewErrorResponder(responder))
	return handler, nil
}

// maxStandIns is how many pods of a service are asked whether something stands in for them.
const maxStandIns = 10

// standIn returns a handler that sends requests on to what stands in for a ready pod of the
// service, or nil if nothing does.
func (p *serviceProxy) standIn(
	ctx context.Context, id, path string, responder rest.Responder,
) http.Handler {
	scheme, name, port, ok := utilnet.SplitSchemeNamePort(id)
	if !ok || p.client == nil || p.kubelet == nil {
		return nil
	}
	obj, err := p.services.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil // locate says why
	}
	s := obj.(*corev1.Service)
	for _, sp := range s.Spec.Ports {
		if strconv.Itoa(int(sp.Port)) == port {
			port = sp.Name
		}
	}
	list, err := p.client.DiscoveryV1().EndpointSlices(s.Namespace).List(ctx,
		metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + s.Name})
	if err != nil {
		return nil
	}
	k, left := kubelets{nodes: p.client.CoreV1(), simulated: p.kubelet}, maxStandIns
	for _, slice := range list.Items {
		for _, sp := range slice.Ports {
			if sp.Port == nil || sp.Name == nil || *sp.Name != port {
				continue
			}
			for _, e := range slice.Endpoints {
				if e.TargetRef == nil || e.TargetRef.Kind != "Pod" ||
					e.Conditions.Ready != nil && !*e.Conditions.Ready {
					continue
				}
				if left--; left < 0 {
					return nil
				}
				pod, err := p.client.CoreV1().Pods(s.Namespace).Get(ctx, e.TargetRef.Name,
					metav1.GetOptions{})
				if err != nil {
					continue
				}
				handler, err := k.standIn(ctx, pod, scheme, strconv.Itoa(int(*sp.Port)),
					"/"+strings.TrimPrefix(path, "/"), responder)
				if err == nil && handler != nil {
					return handler
				}
			}
		}
	}
	return nil
}

// locate returns the URL of a ready endpoint. The id is [scheme:]name[:port], where port is the
// name or the number of a port of the service.
func (p *serviceProxy) locate(ctx context.Context, id string) (*url.URL, error) {
	scheme, name, port, ok := utilnet.SplitSchemeNamePort(id)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%q is not of the form [http:|https:]name[:port]",
			id))
	}
	obj, err := p.services.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	s := obj.(*corev1.Service)
	// Endpoints identify the port only by its name.
	if number, err := strconv.Atoi(port); err == nil {
		found := false
		for _, sp := range s.Spec.Ports {
			if int(sp.Port) == number {
				port, found = sp.Name, true
				break
			}
		}
		if !found {
			return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("service %q has no port %d",
				name, number))
		}
	}
	if p.client == nil {
		return nil, apierrors.NewServiceUnavailable("this server cannot connect to services")
	}
	addresses, err := p.endpoints(ctx, s, port)
	if err != nil {
		return nil, err
	}
	if len(addresses) == 0 {
		return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("no endpoints available for service %q",
			id))
	}
	var allowed []netip.AddrPort
	for _, address := range addresses {
		if notAllowed := p.dialer.check(address.Addr()); notAllowed == nil {
			allowed = append(allowed, address)
		} else {
			err = notAllowed
		}
	}
	if len(allowed) == 0 {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("service %q: %v", id, err))
	}
	address := allowed[rand.IntN(len(allowed))] // to spread load
	return &url.URL{Scheme: scheme, Host: address.String()}, nil
}

// endpoints returns the addresses of the ready endpoints that serve a port, from the EndpointSlices
// of the service or, if it has none, from its Endpoints. Host names are left out: no user may make
// this server resolve names of their choice.
func (p *serviceProxy) endpoints(
	ctx context.Context, s *corev1.Service, port string,
) ([]netip.AddrPort, error) {
	found := sets.New[netip.AddrPort]()
	insert := func(address string, port int32) {
		// old endpoints may have leading zeros
		ip, ok := netip.AddrFromSlice(netutils.ParseIPSloppy(address))
		if ok && port > 0 && port <= math.MaxUint16 {
			found.Insert(netip.AddrPortFrom(ip.Unmap(), uint16(port)))
		}
	}
	list, err := p.client.DiscoveryV1().EndpointSlices(s.Namespace).List(ctx,
		metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + s.Name})
	if err != nil {
		return nil, fmt.Errorf("list endpoint slices: %w", err)
	}
	for _, slice := range list.Items {
		if slice.AddressType == discoveryv1.AddressTypeFQDN {
			continue
		}
		for _, sp := range slice.Ports {
			if sp.Port == nil || sp.Name == nil || *sp.Name != port {
				continue
			}
			for _, e := range slice.Endpoints {
				if len(e.Addresses) > 0 && (e.Conditions.Ready == nil || *e.Conditions.Ready) {
					insert(e.Addresses[0], *sp.Port)
				}
			}
		}
	}
	if len(list.Items) > 0 {
		return found.UnsortedList(), nil
	}
	e, err := p.client.CoreV1().Endpoints(s.Namespace).Get(ctx, s.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		// As in kube-apiserver, report the service as missing.
		return nil, apierrors.NewNotFound(corev1.Resource("services"), s.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("get endpoints: %w", err)
	}
	for _, subset := range e.Subsets {
		for _, sp := range subset.Ports {
			if sp.Name != port {
				continue
			}
			for _, a := range subset.Addresses {
				insert(a.IP, sp.Port)
			}
		}
	}
	return found.UnsortedList(), nil
}
