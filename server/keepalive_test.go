package server_test

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest"
)

// anonymously sends one request over HTTP/1.1 without credentials, as curl -k does. The connection
// stays open.
func anonymously(t testing.TB, s *server.Server, dial utilnet.DialFunc, path string) {
	t.Helper()
	// A non-nil map disables HTTP/2.
	transport := &http.Transport{
		DialContext:     dial,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		TLSNextProto:    map[string]func(string, *tls.Conn) http.RoundTripper{},
	}
	t.Cleanup(transport.CloseIdleConnections)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := transport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	if answer.ProtoMajor != 1 || answer.StatusCode != http.StatusOK || string(body) != "ok" {
		t.Fatalf("%s %s: %s", answer.Proto, answer.Status, body)
	}
}

// startCaches makes a control plane without controllers start the watch cache of cluster roles
// before its last change, and another one after it.
func startCaches(t testing.TB, s *server.Server) {
	t.Helper()
	client, err := kubernetes.NewForConfig(s.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	older, err := client.RbacV1().ClusterRoles().Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer older.Stop()
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"}}
	if _, err := client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(t.Context(), config,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	younger, err := client.CoreV1().ReplicationControllers("").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	younger.Stop()
}

// A script that checks whether the server is ready and then stops it does not have to wait. A stop
// once took three seconds, because the first anonymous request starts watches of roles.
func TestStopAfterAnonymousRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := servertest.Run(t, servertest.InBubble, servertest.WithoutControllers)
		startCaches(t, s)
		anonymously(t, s, s.Network().DialContext, "/readyz")
		began := time.Now()
		if err := s.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took >= time.Second {
			t.Errorf("the stop took %v", took)
		}
	})
}

// BenchmarkStopAfterAnonymousRequest measures a stop after a single request from a client such as
// curl. It reports the mean.
func BenchmarkStopAfterAnonymousRequest(b *testing.B) {
	var stop time.Duration
	for b.Loop() {
		s, err := server.New(server.Options{Controllers: []string{"-*"}})
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Start(b.Context()); err != nil {
			b.Fatal(err)
		}
		startCaches(b, s)
		anonymously(b, s, nil, "/readyz")
		began := time.Now()
		if err := s.Stop(b.Context()); err != nil {
			b.Fatal(err)
		}
		stop += time.Since(began)
	}
	b.ReportMetric(float64(stop.Microseconds())/1000/float64(b.N), "stop-ms")
}
