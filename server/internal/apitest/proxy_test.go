package apitest

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest"
)

// TestProxyAndLocalAddresses uses endpoints on the server's own machine, to which the proxy
// connects only if that is allowed.
func TestProxyAndLocalAddresses(t *testing.T) {
	t.Parallel()
	var requests atomic.Int32
	port := listenLocally(t, func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		_, _ = io.WriteString(w, "local "+r.Method)
	})

	for _, allowed := range []bool{false, true} {
		s := servertest.Run(t, servertest.WithoutControllers, func(o *server.Options) {
			o.ProxyAllowLocalAddresses = allowed
		})
		typed, err := kubernetes.NewForConfig(s.RESTConfig())
		if err != nil {
			t.Fatal(err)
		}
		client, err := rest.HTTPClientFor(s.RESTConfig())
		if err != nil {
			t.Fatal(err)
		}
		for name, endpoint := range map[string]struct {
			kind    discoveryv1.AddressType
			address string
			reached bool // if local addresses are allowed
		}{
			"ipv4":           {discoveryv1.AddressTypeIPv4, "127.0.0.1", true},
			"other-loopback": {discoveryv1.AddressTypeIPv4, "127.1.2.3", false}, // nothing listens there
			"ipv6":           {discoveryv1.AddressTypeIPv6, "::1", false},
			"name":           {discoveryv1.AddressTypeFQDN, "localhost.example", false},
			"name-of-digits": {discoveryv1.AddressTypeFQDN, "127.0.0.1", false},
		} {
			createServiceAt(t, typed, name, endpoint.kind, endpoint.address, port)
			for _, verb := range []string{http.MethodGet, http.MethodPost, http.MethodPatch} {
				requests.Store(0)
				status, _ := sendBody(t, client, verb,
					s.URL()+"/api/v1/namespaces/default/services/"+name+":80/proxy/", "text/plain", "")
				reached := allowed && endpoint.reached
				switch isName := endpoint.kind == discoveryv1.AddressTypeFQDN; {
				case requests.Load() > 0 != reached, reached && status.Message != "local "+verb,
					isName && !strings.Contains(status.Message, "no endpoint"),
					!isName && !allowed && (status.Code != http.StatusBadRequest ||
						!strings.Contains(status.Message, "--proxy-allow-local-addresses")):
					t.Errorf("%s %s, allowed: %t: %d: %s", verb, name, allowed, status.Code, status.Message)
				}
			}
		}
		if !allowed {
			proxyRefusesUpgrade(t, s.RESTConfig(), &requests)
		}
	}
}

// listenLocally serves HTTP on a port of 127.0.0.1.
func listenLocally(t *testing.T, handler http.HandlerFunc) (port int32) {
	t.Helper()
	local := httptest.NewServer(handler)
	t.Cleanup(local.Close)
	return int32(local.Listener.Addr().(*net.TCPAddr).Port)
}

// createServiceAt creates a Service and an EndpointSlice with one endpoint.
func createServiceAt(
	t *testing.T, client kubernetes.Interface, name string, kind discoveryv1.AddressType,
	address string, port int32,
) {
	t.Helper()
	_, err := client.CoreV1().Services("default").Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.DiscoveryV1().EndpointSlices("default").Create(t.Context(),
		&discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Name:   name,
				Labels: map[string]string{discoveryv1.LabelServiceName: name},
			},
			AddressType: kind,
			Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{address}}},
			Ports: []discoveryv1.EndpointPort{
				{Name: new(""), Port: &port, Protocol: new(corev1.ProtocolTCP)},
			},
		}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// proxyRefusesUpgrade requests an upgrade through the proxy, for which the proxy uses another
// dialer.
func proxyRefusesUpgrade(t *testing.T, config *rest.Config, requests *atomic.Int32) {
	t.Helper()
	config = rest.CopyConfig(config)
	config.NextProtos = []string{"http/1.1"}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		config.Host+"/api/v1/namespaces/default/services/ipv4:80/proxy/", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "websocket")
	requests.Store(0)
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if response.StatusCode != http.StatusBadRequest ||
		!strings.Contains(string(body), "address not allowed") || requests.Load() > 0 {
		t.Errorf("upgrade: %s: %s", response.Status, errors.Join(errors.New(string(body)), err))
	}
}
