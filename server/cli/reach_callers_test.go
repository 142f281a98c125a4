package cli_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kinproc/kinproc/embed"
	"github.com/kinproc/kinproc/server/internal/auth/pki"
)

// This file holds the callers of TestReach and the environment in which it starts the program.

// caller sends requests with credentials, or with none.
type caller struct {
	cert   *pki.Pair
	header http.Header
}

// with returns a caller that also sends these headers: name, value, name, value.
func (c caller) with(headers ...string) caller {
	c.header = maps.Clone(c.header)
	if c.header == nil {
		c.header = http.Header{}
	}
	for i := 0; i < len(headers); i += 2 {
		c.header.Add(headers[i], headers[i+1])
	}
	return c
}

func bearer(token string) caller { return caller{}.with("Authorization", "Bearer "+token) }

// asRoot is what a proxy sends on behalf of an administrator.
var asRoot = []string{"X-Remote-User", "root", "X-Remote-Group", "system:masters"}

// neighbours are what the flags refer to: files and an external etcd.
type neighbours struct {
	dir  string
	pki  *pki.PKI
	etcd string
}

func newNeighbours(t *testing.T) *neighbours {
	t.Helper()
	n := &neighbours{dir: t.TempDir()}
	var err error
	if n.pki, err = pki.New(pki.Options{}); err != nil {
		t.Fatal(err)
	}
	sa := n.client(t, "sa") // its key signs tokens
	block, _ := pem.Decode(sa.Cert)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(cert.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{
		"ca.crt": n.pki.CA.Cert, "proxy.crt": n.pki.Proxy.Cert, "proxy.key": n.pki.Proxy.Key,
		"sa.key": sa.Key, "sa.pub": pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}),
		"tokens.csv": []byte("black,carol,7,developers\nwhite,root,8,system:masters\n"),
		"authorization.yaml": []byte("apiVersion: apiserver.config.k8s.io/v1\n" +
			"kind: AuthorizationConfiguration\nauthorizers: [{type: Node, name: node}]\n"),
		"authentication.yaml": []byte("apiVersion: apiserver.config.k8s.io/v1\n" +
			"kind: AuthenticationConfiguration\nanonymous: {enabled: false}\n"),
		"policy.yaml": []byte(
			"apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: RequestResponse\n"),
	} {
		if err := os.WriteFile(filepath.Join(n.dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	e, err := embed.Start(t.Context(), embed.Options{Ephemeral: true, ListenClient: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	n.etcd = e.Endpoints()[0]
	return n
}

// client returns a certificate signed by the neighbours' authority.
func (n *neighbours) client(t *testing.T, user string, groups ...string) *pki.Pair {
	t.Helper()
	return newClient(t, n.pki, user, groups...)
}

func newClient(t *testing.T, p *pki.PKI, user string, groups ...string) *pki.Pair {
	t.Helper()
	pair, err := p.CA.Client(user, groups, 0)
	if err != nil {
		t.Fatal(err)
	}
	return &pair
}

// reaching is a running program under test.
type reaching struct {
	*program
	url  string
	root *x509.CertPool
	jane *pki.Pair
}

func startReaching(t *testing.T, args []string) *reaching {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	r := &reaching{program: startProgram(t, dir, args...), root: x509.NewCertPool()}
	r.program.client() // waits until it is ready
	config, err := clientcmd.BuildConfigFromFlags("", r.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	r.url = config.Host
	r.root.AppendCertsFromPEM(config.CAData)
	own, err := pki.Load(filepath.Join(dir, "pki"), pki.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r.jane = newClient(t, own, "jane")
	return r
}

// serviceAccountToken returns a token that the server issues for a new service account.
func (r *reaching) serviceAccountToken(t *testing.T) string {
	t.Helper()
	accounts := r.program.client().CoreV1().ServiceAccounts("default")
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "bot"}}
	if _, err := accounts.Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	request, err := accounts.CreateToken(t.Context(), "bot", &authenticationv1.TokenRequest{},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return request.Status.Token
}

// bootstrapToken returns a token whose secret it creates.
func (r *reaching) bootstrapToken(t *testing.T) string {
	t.Helper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-abcdef"},
		Type:       corev1.SecretTypeBootstrapToken,
		StringData: map[string]string{
			"token-id": "abcdef", "token-secret": "0123456789abcdef",
			"usage-bootstrap-authentication": "true",
		},
	}
	secrets := r.program.client().CoreV1().Secrets(metav1.NamespaceSystem)
	if _, err := secrets.Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return "abcdef.0123456789abcdef"
}

// check sends all requests as a caller and checks the status codes.
func (r *reaching) check(t *testing.T, name string, who caller, has reach) {
	t.Helper()
	config := &tls.Config{RootCAs: r.root}
	if who.cert != nil {
		pair, err := who.cert.TLS()
		if err != nil {
			t.Fatal(err)
		}
		// Send the certificate even if the server does not list its authority.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return &pair, nil
		}
	}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: patience}
	for _, route := range routes {
		want := http.StatusForbidden
		switch {
		case has == reachUnknown:
			want = http.StatusUnauthorized
		case has >= route.needs:
			want = route.found
		}
		request, err := http.NewRequestWithContext(t.Context(), route.method, r.url+route.path,
			strings.NewReader(route.body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header = maps.Clone(who.header)
		if request.Header == nil {
			request.Header = http.Header{}
		}
		request.Header.Set("Content-Type", "application/json")
		response, err := client.Do(request)
		if err != nil {
			t.Fatalf("%s: %s %s: %v", name, route.method, route.path, err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || response.StatusCode != want {
			t.Errorf("%s: %s %s: got %d, want %d: %s",
				name, route.method, route.path, response.StatusCode, want, body)
		}
	}
}

// forgedToken returns a token for an administrator that is not signed by anyone whom the server
// trusts.
func forgedToken(t *testing.T, method jwt.SigningMethod, key any) string {
	t.Helper()
	token, err := jwt.NewWithClaims(method, jwt.MapClaims{
		"iss": "https://kubernetes.default.svc",
		"aud": []string{"https://kubernetes.default.svc"},
		"exp": time.Now().Add(time.Hour).Unix(),
		"sub": "system:serviceaccount:kube-system:clusterrole-aggregation-controller",
		"kubernetes.io": map[string]any{
			"namespace":      "kube-system",
			"serviceaccount": map[string]any{"name": "clusterrole-aggregation-controller", "uid": "1"},
		},
	}).SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// checkPlain checks that the server refuses requests without TLS.
func (r *reaching) checkPlain(t *testing.T) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		strings.Replace(r.url, "https:", "http:", 1)+"/healthz", nil)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusBadRequest {
		t.Errorf("without TLS: got %s", response.Status)
	}
}
