package apitest

import (
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/kinproc/kinproc/server/servertest"
)

// TestAggregatorAvailability goes through all reasons for which an APIService may be unavailable,
// from the first to the last and back.
func TestAggregatorAvailability(t *testing.T) {
	t.Parallel()
	e, gone := startExtension(t, "127.0.0.1", "echo"), startExtension(t, "127.0.0.1", "echo")
	gone.Close()
	c := extend(t, servertest.Run(t))
	services, slices := c.CoreV1().Services(metav1.NamespaceDefault),
		c.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault)
	name := c.register("echo", 443, trusting(e))

	setPort := func(port int32) {
		t.Helper()
		s, err := services.Get(t.Context(), "echo", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		s.Spec.Ports[0].Port = port
		if _, err := services.Update(t.Context(), s, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		reason string
		change func()
	}{
		{"ServiceNotFound", func() {}},
		{"ServicePortError", func() { c.service("echo", behind(corev1.ServiceSpec{}, 444)) }},
		{"EndpointsNotFound", func() { setPort(443) }},
		{"MissingEndpoints", func() { c.slice("echo", e.port, endpoint(false, "127.0.0.1")) }},
		{"FailedDiscoveryCheck", func() { c.slice("echo", gone.port, endpoint(true, "127.0.0.1")) }},
		{"Passed", func() { c.slice("echo", e.port, endpoint(true, "127.0.0.1")) }},
		{"FailedDiscoveryCheck", func() { c.slice("echo", gone.port, endpoint(true, "127.0.0.1")) }},
		{"MissingEndpoints", func() { c.slice("echo", e.port) }},
		{"EndpointsNotFound", func() {
			if err := slices.Delete(t.Context(), "echo", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}},
		{"ServicePortError", func() { setPort(444) }},
		{"ServiceNotFound", func() {
			if err := services.Delete(t.Context(), "echo", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		step.change()
		condition := c.await(name, step.reason)
		want, code := apiregistrationv1.ConditionFalse, http.StatusServiceUnavailable
		if step.reason == "Passed" {
			want, code = apiregistrationv1.ConditionTrue, http.StatusOK
		}
		if condition.Status != want || condition.Message == "" {
			t.Errorf("%s: %+v", step.reason, condition)
		}
		c.awaitStatus("/apis/echo.example.com/v1/echoes/one", code)
	}
}

func TestAggregatorTrust(t *testing.T) {
	t.Parallel()
	e, other := startExtension(t, "127.0.0.1", "trusted", "wrong"), startExtension(t, "127.0.0.1")
	c := extend(t, servertest.Run(t))
	for _, test := range []struct {
		service string
		change  func(*apiregistrationv1.APIServiceSpec)
		want    string // the condition's reason
	}{
		{"trusted", trusting(e), "Passed"},
		{"wrong", trusting(other), "FailedDiscoveryCheck"},
		{"nobody", func(*apiregistrationv1.APIServiceSpec) {}, "FailedDiscoveryCheck"},
		{"misnamed", trusting(e), "FailedDiscoveryCheck"},
		{"careless", func(s *apiregistrationv1.APIServiceSpec) {
			s.InsecureSkipTLSVerify = true
		}, "Passed"},
	} {
		t.Run(test.service, func(t *testing.T) {
			t.Parallel()
			c := extend(t, c.server)
			c.service(test.service,
				corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"})
			condition := c.await(c.register(test.service, e.port, test.change), test.want)
			code := http.StatusOK
			if test.want != "Passed" {
				code = http.StatusServiceUnavailable
				if !strings.Contains(condition.Message, "certificate") {
					t.Errorf("the condition's message does not mention the certificate: %s", condition.Message)
				}
			}
			c.awaitStatus("/apis/"+test.service+".example.com/v1/echoes/one", code)
		})
	}
}

// TestAggregatorOfServerThatGoesDown stops an extension API server, which must not affect other
// servers.
func TestAggregatorOfServerThatGoesDown(t *testing.T) {
	t.Parallel()
	e, other := startExtension(t, "127.0.0.1", "down"), startExtension(t, "127.0.0.1", "up")
	c := extend(t, servertest.Run(t))
	for service, e := range map[string]*extension{"down": e, "up": other} {
		c.service(service,
			corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"})
		name := c.register(service, e.port, trusting(e))
		c.await(name, "Passed")
		c.awaitStatus("/apis/"+service+".example.com/v1/echoes/one", http.StatusOK)
	}

	e.Close()
	if response, body := c.get("/apis/down.example.com/v1/echoes/one"); response.StatusCode !=
		http.StatusServiceUnavailable {
		t.Errorf("%s %s", response.Status, body)
	}
	// A changed APIService is checked at once, a changed server only at the next recheck.
	_, err := c.aggregator.ApiregistrationV1().APIServices().Patch(t.Context(), "v1.down.example.com",
		types.MergePatchType, []byte(`{"metadata": {"annotations": {"example.com/look": "now"}}}`),
		metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.await("v1.down.example.com", "FailedDiscoveryCheck")
	for path, want := range map[string]int{
		"/apis/down.example.com/v1/echoes/one": http.StatusServiceUnavailable,
		"/apis/down.example.com/v1":            http.StatusServiceUnavailable,
		"/apis/up.example.com/v1/echoes/one":   http.StatusOK,
		"/apis":                                http.StatusOK,
		"/apis/apps/v1":                        http.StatusOK,
		"/api/v1/namespaces/default":           http.StatusOK,
	} {
		if response, body := c.get(path); response.StatusCode != want {
			t.Errorf("%s: %s %s", path, response.Status, body)
		}
	}
}
