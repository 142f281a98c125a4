package apitest

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gorilla/websocket"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorclientset "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"github.com/kinproc/kinproc/server"
)

// extension is an extension API server in plain net/http that serves version v1 of any group. It
// has discovery, echoes, their subresource talk, which is a websocket that repeats every message,
// and reviews, which is an admission webhook that denies everything.
type extension struct {
	*httptest.Server
	port     int32
	caBundle []byte
}

// startExtension starts the server on a free port of an address. Its certificate is valid for the
// given services in the namespace default.
func startExtension(t *testing.T, ip string, services ...string) *extension {
	t.Helper()
	var names []string
	for _, service := range services {
		names = append(names, service+".default.svc")
	}
	authority, key, err := certutil.GenerateSelfSignedCertKey("extension", nil, names)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(authority, key)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(ip, "0"))
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /apis/{group}/v1", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w,
			`{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"%s/v1","resources":[]}`,
			r.PathValue("group"))
	})
	mux.HandleFunc("GET /apis/{group}/v1/echoes/{name}", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"user":%q}`, r.Header.Get("X-Remote-User"))
	})
	mux.HandleFunc("GET /apis/{group}/v1/echoes/{name}/talk", extensionTalk)
	mux.HandleFunc("POST /apis/{group}/v1/reviews", extensionReview)
	s := httptest.NewUnstartedServer(mux)
	s.Listener.Close()
	s.Listener = listener
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // silence the errors of handshakes that should fail
	s.StartTLS()
	t.Cleanup(s.Close)
	return &extension{s, int32(listener.Addr().(*net.TCPAddr).Port), authority}
}

// handle adds what the server answers.
func (e *extension) handle(pattern string, handler http.HandlerFunc) {
	e.Config.Handler.(*http.ServeMux).HandleFunc(pattern, handler)
}

func extensionTalk(w http.ResponseWriter, r *http.Request) {
	conn, err := new(websocket.Upgrader).Upgrade(w, r, nil)
	if err != nil {
		return // the upgrader has responded with an error
	}
	defer conn.Close()
	for {
		kind, message, err := conn.ReadMessage()
		if err != nil {
			return // the client has gone
		}
		if err := conn.WriteMessage(kind, message); err != nil {
			return
		}
	}
}

func extensionReview(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Result: &metav1.Status{
		Message: "denied at the request of " + r.Header.Get("X-Remote-User"),
	}}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review) // the client has gone
}

// extendedCluster is a control plane with clients for it.
type extendedCluster struct {
	*testing.T
	server *server.Server
	kubernetes.Interface
	aggregator aggregatorclientset.Interface
	http       *http.Client
}

func extend(t *testing.T, s *server.Server) extendedCluster {
	t.Helper()
	client, err := rest.HTTPClientFor(s.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	return extendedCluster{
		t, s, kubernetes.NewForConfigOrDie(s.RESTConfig()),
		aggregatorclientset.NewForConfigOrDie(s.RESTConfig()), client,
	}
}

// get sends a GET and returns the response and its body.
func (c extendedCluster) get(path string) (*http.Response, string) {
	c.Helper()
	request, err := http.NewRequestWithContext(c.Context(), http.MethodGet, c.server.URL()+path, nil)
	if err != nil {
		c.Fatal(err)
	}
	response, err := c.http.Do(request)
	if err != nil {
		c.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		c.Fatal(err)
	}
	return response, string(body)
}

// register creates the APIService v1 of group <service>.example.com.
func (c extendedCluster) register(
	service string, port int32, change func(*apiregistrationv1.APIServiceSpec),
) (name string) {
	c.Helper()
	s := &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: "v1." + service + ".example.com"},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: service + ".example.com", Version: "v1", GroupPriorityMinimum: 1000, VersionPriority: 10,
			Service: &apiregistrationv1.ServiceReference{
				Namespace: metav1.NamespaceDefault,
				Name:      service,
				Port:      &port,
			},
		},
	}
	change(&s.Spec)
	if _, err := c.aggregator.ApiregistrationV1().APIServices().Create(c.Context(), s,
		metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
	return s.Name
}

func trusting(e *extension) func(*apiregistrationv1.APIServiceSpec) {
	return func(s *apiregistrationv1.APIServiceSpec) { s.CABundle = e.caBundle }
}

// service creates a service in the namespace default.
func (c extendedCluster) service(name string, spec corev1.ServiceSpec) {
	c.Helper()
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	if _, err := c.CoreV1().Services(metav1.NamespaceDefault).Create(c.Context(), s,
		metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
}

// behind adds a port to the spec of a service, whose endpoints are defined elsewhere.
func behind(spec corev1.ServiceSpec, port int32) corev1.ServiceSpec {
	spec.Ports = []corev1.ServicePort{{Name: "https", Port: port}}
	return spec
}

// slice creates or updates the endpoint slice of a service.
func (c extendedCluster) slice(service string, port int32, endpoints ...discoveryv1.Endpoint) {
	c.Helper()
	slices := c.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault)
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name:   service,
			Labels: map[string]string{discoveryv1.LabelServiceName: service},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("https"), Port: &port}},
		Endpoints:   endpoints,
	}
	_, err := slices.Create(c.Context(), s, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = slices.Update(c.Context(), s, metav1.UpdateOptions{})
	}
	if err != nil {
		c.Fatal(err)
	}
}

func endpoint(ready bool, address string) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{
		Addresses:  []string{address},
		Conditions: discoveryv1.EndpointConditions{Ready: &ready},
	}
}

// await waits until the condition Available of an APIService has the given reason.
func (c extendedCluster) await(name, reason string) apiregistrationv1.APIServiceCondition {
	c.Helper()
	w, err := c.aggregator.ApiregistrationV1().APIServices().Watch(c.Context(), metav1.ListOptions{
		FieldSelector: "metadata.name=" + name, TimeoutSeconds: new(int64(60)),
	})
	if err != nil {
		c.Fatal(err)
	}
	defer w.Stop()
	var last []apiregistrationv1.APIServiceCondition
	for event := range w.ResultChan() {
		s, ok := event.Object.(*apiregistrationv1.APIService)
		if !ok {
			c.Fatal(apierrors.FromObject(event.Object))
		}
		last = s.Status.Conditions
		for _, condition := range last {
			if condition.Reason == reason {
				return condition
			}
		}
	}
	c.Fatalf("APIService %s: timed out waiting for the reason %s, last conditions: %v",
		name, reason, last)
	panic("unreachable")
}

// awaitStatus waits until a GET of a path gets a status code. The server acts on the condition of
// an APIService a moment after the condition is set.
func (c extendedCluster) awaitStatus(path string, want int) {
	c.Helper()
	eventually(c.T, path, func() error {
		if response, body := c.get(path); response.StatusCode != want {
			return fmt.Errorf("%s %s", response.Status, body)
		}
		return nil
	})
}
