package apitest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"io"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/embed"
	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/requests/paths"
	"github.com/kinproc/kinproc/server/servertest"
)

// plain returns a client that uses HTTP/1.1, with a connection of its own for each request.
func plain(t *testing.T, s *server.Server) *http.Client {
	t.Helper()
	config, err := rest.TLSConfigFor(s.RESTConfig())
	ok(t, err)
	config.NextProtos = nil
	transport := &http.Transport{
		TLSClientConfig: config, TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{},
		DisableCompression: true, DisableKeepAlives: true, ExpectContinueTimeout: time.Minute,
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// quicklyReset resets a control plane, which must not wait for a client.
func quicklyReset(t *testing.T, s *server.Server, to *server.Snapshot) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := s.Reset(ctx, to); err != nil {
		t.Error(err)
	}
}

// A reset does not wait for a request whose body does not come. If it comes later, the request
// fails, because it was authorized before the reset.
func TestAttackBodyThatNeverComes(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t)
	c := clientsOf(t, s)
	snapshot := takeSnapshot(t, s)
	_, err := c.CoreV1().ConfigMaps("default").Create(t.Context(), named("later"),
		metav1.CreateOptions{})
	ok(t, err)
	body, send := io.Pipe()
	read := make(chan struct{})
	r, err := http.NewRequestWithContext(
		httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
			Got100Continue: func() { close(read) }, // when the server begins to read the body
		}), http.MethodPost, s.RESTConfig().Host+"/api/v1/namespaces/default/configmaps", body)
	ok(t, err)
	r.Header.Set("Expect", "100-continue")
	r.Header.Set("Content-Type", "application/json")
	answers := make(chan *http.Response, 1)
	go func() {
		answer, err := plain(t, s).Do(r)
		if err != nil {
			t.Error(err)
		}
		answers <- answer
	}()
	<-read
	quicklyReset(t, s, snapshot)
	_, err = io.WriteString(send,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"of-before"}}`)
	ok(t, errors.Join(err, send.Close()))
	answer := <-answers
	if answer == nil {
		return
	}
	defer answer.Body.Close()
	said, err := io.ReadAll(answer.Body)
	ok(t, err)
	if answer.StatusCode != http.StatusConflict || !strings.Contains(string(said), "was reset") {
		t.Errorf("the request that began before the reset got %s: %s", answer.Status, said)
	}
}

// A reset does not wait for a client that does not read the response.
func TestAttackResponseThatIsNotRead(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t)
	c := clientsOf(t, s)
	snapshot := takeSnapshot(t, s)
	for n := range 24 { // more than the buffers of a connection hold
		m := named("large-" + strconv.Itoa(n))
		m.Data["x"] = strings.Repeat("x", 1000<<10)
		_, err := c.CoreV1().ConfigMaps("default").Create(t.Context(), m, metav1.CreateOptions{})
		ok(t, err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		s.RESTConfig().Host+"/api/v1/configmaps", nil)
	ok(t, err)
	answer, err := plain(t, s).Do(r)
	ok(t, err)
	defer answer.Body.Close()
	quicklyReset(t, s, snapshot)
}

// A group of Kubernetes has a CRD that discovery does not show. A reset does not wait for that.
func TestAttackDefinitionThatDiscoveryNeverShows(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t)
	c := clientsOf(t, s)
	definitions := c.crds.ApiextensionsV1().CustomResourceDefinitions()
	const name = "foos.authorization.k8s.io"
	_, err := definitions.Create(t.Context(), &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Annotations: map[string]string{"api-approved.kubernetes.io": "unapproved, for a test"},
		},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "authorization.k8s.io",
			Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: "Foo", Plural: "foos"},
			Scope: apiextensionsv1.ClusterScoped,
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v9", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{
					OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"},
				},
			}},
		},
	}, metav1.CreateOptions{})
	ok(t, err)
	await(t, "the CRD is established", func() bool {
		d, err := definitions.Get(t.Context(), name, metav1.GetOptions{})
		ok(t, err)
		for _, condition := range d.Status.Conditions {
			if condition.Type == "Established" && condition.Status == "True" {
				return true
			}
		}
		return false
	})
	with := takeSnapshot(t, s)
	ok(t, definitions.Delete(t.Context(), name, metav1.DeleteOptions{}))
	await(t, "the CRD is gone", func() bool {
		_, err := definitions.Get(t.Context(), name, metav1.GetOptions{})
		return err != nil
	})
	quicklyReset(t, s, with)
	if _, err := definitions.Get(t.Context(), name, metav1.GetOptions{}); err != nil {
		t.Errorf("after the reset: %v", err)
	}
	_, err = c.CoreV1().ConfigMaps("default").Create(t.Context(), named("after"),
		metav1.CreateOptions{})
	ok(t, err)
}

// A running server refuses a snapshot whose freelist is not there, and goes on.
func TestAttackDamagedSnapshotAtReset(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t)
	var b bytes.Buffer
	_, err := takeSnapshot(t, s).WriteTo(&b)
	ok(t, err)
	const pageSize, freelist = 4096, 32
	database := b.Bytes()[:b.Len()-sha256.Size]
	for page := range 2 {
		meta := database[page*pageSize+16:]
		binary.NativeEndian.PutUint64(meta[freelist:], 9999999)
		sum := fnv.New64a()
		sum.Write(meta[:56])
		binary.NativeEndian.PutUint64(meta[56:], sum.Sum64())
	}
	sum := sha256.Sum256(database)
	damaged := append(database, sum[:]...)
	if _, err := server.ReadSnapshot(bytes.NewReader(damaged)); !errors.Is(err, embed.ErrCorrupt) {
		t.Errorf("read: %v, want %v", err, embed.ErrCorrupt)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
		s.RESTConfig().Host+paths.Reset, bytes.NewReader(damaged))
	ok(t, err)
	answer, err := plain(t, s).Do(r)
	ok(t, err)
	defer answer.Body.Close()
	if said, err := io.ReadAll(answer.Body); err != nil || answer.StatusCode != http.StatusBadRequest {
		t.Errorf("the reset got %s: %s %v", answer.Status, said, err)
	}
	_, err = clientsOf(t, s).CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{})
	ok(t, err)
}
