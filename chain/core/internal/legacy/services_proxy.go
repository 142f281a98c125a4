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

// serviceProxy is services/proxy: it connects to a ready endpoint of the service, where this process can reach one.
type serviceProxy struct {
	services *genericregistry.Store
	client   kubernetes.Interface
	dialer   proxyDialer
}

var (
	_ rest.Connecter       = &serviceProxy{}
	_ rest.StorageMetadata = &serviceProxy{}
)

// registerServiceProxyOptions lets the options be read from a query.
func registerServiceProxyOptions(scheme *runtime.Scheme) error {
	return scheme.AddConversionFunc((*url.Values)(nil), (*corev1.ServiceProxyOptions)(nil), func(in, out any, _ conversion.Scope) error {
		out.(*corev1.ServiceProxyOptions).Path = in.(*url.Values).Get("path")
		return nil
	})
}

func (p *serviceProxy) New() runtime.Object { return &corev1.ServiceProxyOptions{} }

// Destroy leaves the store to the main resource.
func (p *serviceProxy) Destroy() {}

func (p *serviceProxy) ConnectMethods() []string {
	return []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodHead, http.MethodOptions}
}

func (p *serviceProxy) NewConnectOptions() (runtime.Object, bool, string) {
	return &corev1.ServiceProxyOptions{}, true, "path"
}

func (p *serviceProxy) ProducesMIMETypes(string) []string { return nil }
func (p *serviceProxy) ProducesObject(string) any         { return nil }

func (p *serviceProxy) Connect(ctx context.Context, id string, options runtime.Object, responder rest.Responder) (http.Handler, error) {
	location, err := p.locate(ctx, id)
	if err != nil {
		return nil, err
	}
	location.Path = utilnet.JoinPreservingTrailingSlash(location.Path, options.(*corev1.ServiceProxyOptions).Path)
	// Nothing names the certificate of an endpoint, so that TLS is for secrecy only here, as in kube-apiserver.
	transport := p.dialer.transport()
	transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true}
	handler := utilproxy.NewUpgradeAwareHandler(location, utilnet.SetTransportDefaults(transport), true, false, utilproxy.NewErrorResponder(responder))
	return handler, nil
}

// locate finds a ready endpoint. The id is [scheme:]name[:port], the port being a name or a number of the service.
func (p *serviceProxy) locate(ctx context.Context, id string) (*url.URL, error) {
	scheme, name, port, ok := utilnet.SplitSchemeNamePort(id)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%q is not of the form [http:|https:]name[:port]", id))
	}
	obj, err := p.services.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	s := obj.(*corev1.Service)
	// The endpoints know the port by its name only.
	if number, err := strconv.Atoi(port); err == nil {
		found := false
		for _, sp := range s.Spec.Ports {
			if int(sp.Port) == number {
				port, found = sp.Name, true
				break
			}
		}
		if !found {
			return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("service %q has no port %d", name, number))
		}
	}
	if p.client == nil {
		return nil, apierrors.NewServiceUnavailable("this server connects to no services")
	}
	addresses, err := p.endpoints(ctx, s, port)
	if err != nil {
		return nil, err
	}
	if len(addresses) == 0 {
		return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("no endpoint of service %q is ready", id))
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

// endpoints are the addresses of the ready ones that serve a port, from the service's slices or, without any, its Endpoints. Names
// among them are left out: nobody is to have names of his choice resolved here.
func (p *serviceProxy) endpoints(ctx context.Context, s *corev1.Service, port string) ([]netip.AddrPort, error) {
	found := sets.New[netip.AddrPort]()
	insert := func(address string, port int32) {
		ip, ok := netip.AddrFromSlice(netutils.ParseIPSloppy(address)) // as old as they may be
		if ok && port > 0 && port <= math.MaxUint16 {
			found.Insert(netip.AddrPortFrom(ip.Unmap(), uint16(port)))
		}
	}
	list, err := p.client.DiscoveryV1().EndpointSlices(s.Namespace).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + s.Name})
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
		// As in kube-apiserver, it is the service that is missing, then.
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
