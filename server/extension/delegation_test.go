package extension_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/server/extension"
	"github.com/kinproc/kinproc/server/servertest"
)

// rooms returns a client for the rooms of the namespace "default".
func rooms(t *testing.T, config *rest.Config, version schema.GroupVersion) dynamic.ResourceInterface {
	t.Helper()
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client.Resource(version.WithResource("rooms")).Namespace("default")
}

func room(name, topic string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "chat.example.com/v2", "kind": "Room",
		"metadata": map[string]any{"name": name},
		"spec":     map[string]any{"topic": topic},
	}}
}

// direct returns the configuration of a client that connects to s itself, with a token.
func direct(s *extension.Server, token string) *rest.Config {
	return &rest.Config{
		Host: "https://" + s.Addr().String(), BearerToken: token,
		TLSClientConfig: rest.TLSClientConfig{CAData: s.Registration().APIServices[0].Spec.CABundle},
	}
}

// The control plane decides who users are and what they may do, whichever way they come.
func TestUsers(t *testing.T) {
	t.Parallel()
	plane := servertest.Run(t)
	s, _ := start(t, extension.Options{RESTConfig: plane.RESTConfig()})
	register(t, plane.RESTConfig(), s)
	reader := servertest.User(t, plane, servertest.Account{
		Name: "reader",
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{"chat.example.com"}, Resources: []string{"rooms"},
			Verbs: []string{"get", "list", "watch"},
		}},
	})
	if _, err := rooms(t, reader, chatV2).List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("a reader cannot list rooms: %v", err)
	}
	_, err := rooms(t, reader, chatV2).Create(t.Context(), room("a", "b"), metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `User "reader"`) {
		t.Errorf("a reader creates a room: %v", err)
	}

	admin, err := kubernetes.NewForConfig(plane.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	var request *authenticationv1.TokenRequest
	if err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, time.Minute, true,
		func(ctx context.Context) (bool, error) {
			request, err = admin.CoreV1().ServiceAccounts("default").CreateToken(ctx, "default",
				&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
			if apierrors.IsNotFound(err) {
				return false, nil // a control loop is yet to make the account
			}
			return err == nil, err
		}); err != nil {
		t.Fatal(err)
	}
	account := rooms(t, direct(s, request.Status.Token), chatV2)
	if _, err := account.List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) ||
		!strings.Contains(err.Error(), "system:serviceaccount:default:default") {
		t.Errorf("a service account without permissions lists rooms: %v", err)
	}
	forged := direct(s, "")
	forged.WrapTransport = func(next http.RoundTripper) http.RoundTripper {
		return headers{next, http.Header{
			"X-Remote-User": {"kubernetes-admin"}, "X-Remote-Group": {"system:masters"},
		}}
	}
	_, err = rooms(t, forged, chatV2).List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "system:anonymous") {
		t.Errorf("forged headers: %v", err)
	}
	masters, err := plane.User("ann", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	certified := direct(s, "")
	certified.CertData, certified.KeyData = masters.CertData, masters.KeyData
	if _, err := rooms(t, certified, chatV2).List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("a client certificate of the control plane: %v", err)
	}
}

// headers adds headers to requests.
type headers struct {
	next http.RoundTripper
	add  http.Header
}

func (h headers) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for name, values := range h.add {
		r.Header[name] = values
	}
	return h.next.RoundTrip(r)
}

func TestWebsocket(t *testing.T) {
	t.Parallel()
	plane := servertest.Run(t)
	s, stop := start(t, extension.Options{RESTConfig: plane.RESTConfig()})
	register(t, plane.RESTConfig(), s)
	config, err := plane.User("ann", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	trusted, err := rest.TLSConfigFor(config)
	if err != nil {
		t.Fatal(err)
	}
	dialer := websocket.Dialer{TLSClientConfig: trusted}
	conn, response, err := dialer.DialContext(t.Context(), strings.Replace(plane.URL(), "https", "wss", 1)+
		"/apis/chat.example.com/v2/namespaces/default/rooms/lobby/talk", nil)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	defer conn.Close()
	if err := conn.WriteMessage(websocket.TextMessage, []byte("nice day")); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"hello, ann, in lobby", "nice day"} {
		if _, got, err := conn.ReadMessage(); err != nil || string(got) != want {
			t.Fatalf("read %q, %v, want %q", got, err, want)
		}
	}
	// A stop ends the connection.
	stop()
	if _, got, err := conn.ReadMessage(); err == nil {
		t.Errorf("read %q from a server that has stopped", got)
	}
}

func TestWatch(t *testing.T) {
	t.Parallel()
	plane := servertest.Run(t)
	s, _ := start(t, extension.Options{RESTConfig: plane.RESTConfig()})
	register(t, plane.RESTConfig(), s)
	client := rooms(t, plane.RESTConfig(), chatV2)
	w, err := rooms(t, plane.RESTConfig(), chatV1).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	made, err := client.Create(t.Context(), room("a", "news"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	next(t, w, watch.Added, "news")
	made.Object["spec"].(map[string]any)["topic"] = "sports"
	if _, err := client.Update(t.Context(), made, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	next(t, w, watch.Modified, "sports")
	if _, err := client.Update(t.Context(), made, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("an update with an old resource version: %v", err)
	}
	if err := client.Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	next(t, w, watch.Deleted, "sports")

	for _, name := range []string{"a", "b", "c"} {
		if _, err := client.Create(t.Context(), room(name, "x"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	page, err := client.List(t.Context(), metav1.ListOptions{Limit: 2})
	if err != nil || len(page.Items) != 2 || page.GetContinue() == "" {
		t.Fatalf("first page: %v, %v", page, err)
	}
	if page, err = client.List(t.Context(), metav1.ListOptions{
		Limit: 2, Continue: page.GetContinue(),
	}); err != nil || len(page.Items) != 1 || page.Items[0].GetName() != "c" {
		t.Errorf("second page: %v, %v", page, err)
	}
}

// next checks the next event of rooms of v1.
func next(t *testing.T, w watch.Interface, want watch.EventType, topic string) {
	t.Helper()
	select {
	case e := <-w.ResultChan():
		u, ok := e.Object.(*unstructured.Unstructured)
		if !ok || e.Type != want || u.Object["topic"] != topic {
			t.Fatalf("the event is %s %v, want %s of a room about %s", e.Type, e.Object, want, topic)
		}
	case <-t.Context().Done():
		t.Fatalf("no event %s", want)
	}
}

func TestServingNames(t *testing.T) {
	t.Parallel()
	plane := servertest.Run(t, servertest.WithoutControllers)
	s, _ := start(t, extension.Options{RESTConfig: plane.RESTConfig(), Namespace: "chats"})
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.Registration().APIServices[0].Spec.CABundle)
	for _, name := range []string{"chat.chats.svc", "localhost", "127.0.0.1"} {
		dialer := tls.Dialer{Config: &tls.Config{
			RootCAs: roots, ServerName: name, MinVersion: tls.VersionTLS12,
		}}
		conn, err := dialer.DialContext(context.Background(), "tcp", s.Addr().String())
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		conn.Close()
	}
}
