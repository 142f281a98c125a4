package aggregator_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest"
)

// TestWebsocket leaves a websocket to an extension API server open. With one request at a time, others are still served, and it is still
// there afterwards.
func TestWebsocket(t *testing.T) {
	t.Parallel()
	e := startExtension(t, "127.0.0.1", "talk")
	s := servertest.Run(t, func(o *server.Options) {
		o.MaxRequestsInFlight, o.AuthorizationModes = 1, []string{"AlwaysAllow"} // limits are not for administrators
	})
	c := newCluster(t, s)
	c.service("talk", corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"})
	c.await(c.register("talk", e.port, trusting(e)), "Passed")
	c.awaitStatus("/apis/talk.example.com/v1/echoes/one", 200)

	ann, err := s.User("ann")
	if err != nil {
		t.Fatal(err)
	}
	tls, err := rest.TLSConfigFor(ann)
	if err != nil {
		t.Fatal(err)
	}
	dialer := websocket.Dialer{TLSClientConfig: tls}
	conn, response, err := dialer.DialContext(t.Context(), strings.Replace(s.URL(), "https", "wss", 1)+"/apis/talk.example.com/v1/echoes/one/talk", nil)
	if err != nil {
		t.Fatalf("%v (%v)", err, response)
	}
	defer response.Body.Close()
	defer conn.Close()
	repeats := func(message string) {
		t.Helper()
		if err := conn.WriteMessage(websocket.TextMessage, []byte(message)); err != nil {
			t.Fatal(err)
		}
		if _, got, err := conn.ReadMessage(); err != nil || string(got) != message {
			t.Errorf("heard %q, %v, want %q", got, err, message)
		}
	}
	repeats("hello")

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // less than a request may wait for its turn
	defer cancel()
	if _, err := kubernetes.NewForConfigOrDie(ann).CoreV1().ConfigMaps("").List(ctx, metav1.ListOptions{}); err != nil {
		t.Errorf("while the websocket is open: %v", err)
	}
	repeats("still there")
}
