package apitest

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest"
)

// issuer is an OpenID Connect provider with a self-signed certificate.
type issuer struct {
	url string
	ca  []byte // PEM
	key *rsa.PrivateKey
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	i := &issuer{key: key}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, map[string]any{"issuer": i.url, "jwks_uri": i.url + "/keys"})
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		number := func(n *big.Int) string { return base64.RawURLEncoding.EncodeToString(n.Bytes()) }
		reply(w, map[string]any{"keys": []any{map[string]string{
			"kty": "RSA", "use": "sig", "alg": "RS256", "kid": "k",
			"n": number(key.N), "e": number(big.NewInt(int64(key.E))),
		}}})
	})
	i.url, i.ca = serveTLS(t, mux)
	return i
}

func reply(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value) // the client reports what it misses
}

// serveTLS serves with a self-signed certificate, and returns the URL and the certificate.
func serveTLS(t *testing.T, h http.Handler) (url string, ca []byte) {
	t.Helper()
	s := httptest.NewTLSServer(h)
	t.Cleanup(s.Close)
	return s.URL, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

// token returns a token with claims, for the audience kinproc unless they say otherwise.
func (i *issuer) token(t *testing.T, claims jwt.MapClaims) string {
	t.Helper()
	all := jwt.MapClaims{
		"iss": i.url, "aud": "kinproc", "exp": time.Now().Add(time.Hour).Unix(),
		"iat": time.Now().Unix(),
	}
	for name, value := range claims {
		all[name] = value
	}
	unsigned := jwt.NewWithClaims(jwt.SigningMethodRS256, all)
	unsigned.Header["kid"] = "k"
	signed, err := unsigned.SignedString(i.key)
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

// writeFile writes a file of the test and returns its path.
func writeFile(t *testing.T, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// whoIs returns whom the server takes the bearer of a token for.
func whoIs(ctx context.Context, s *server.Server, token string) (authenticationv1.UserInfo, error) {
	config := rest.AnonymousClientConfig(s.RESTConfig())
	config.BearerToken = token
	review, err := kubernetes.NewForConfigOrDie(config).AuthenticationV1().SelfSubjectReviews().Create(
		ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return authenticationv1.UserInfo{}, err
	}
	return review.Status.UserInfo, nil
}

// isUser returns a function that fails as long as a token is not that of a user.
func isUser(
	t *testing.T, s *server.Server, token, name string, groups ...string,
) func() error {
	return func() error {
		who, err := whoIs(t.Context(), s, token)
		if err != nil {
			return err
		}
		for _, group := range groups {
			if !slices.Contains(who.Groups, group) {
				return fmt.Errorf("%s is not in %s, but in %q", who.Username, group, who.Groups)
			}
		}
		if who.Username != name {
			return fmt.Errorf("the user is %s, not %s", who.Username, name)
		}
		return nil
	}
}

func TestOIDC(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	s := servertest.Run(t, func(o *server.Options) {
		o.OIDC = server.OIDCOptions{
			IssuerURL: i.url, ClientID: "kinproc", CAFile: writeFile(t, "ca.crt", i.ca),
			GroupsClaim: "groups", GroupsPrefix: "oidc:",
			RequiredClaims: map[string]string{"tenant": "zoo"},
		}
	})
	jane := jwt.MapClaims{"sub": "jane", "groups": []string{"dev"}, "tenant": "zoo"}
	eventually(t, "a token of the issuer",
		isUser(t, s, i.token(t, jane), i.url+"#jane", "oidc:dev"))
	for what, claims := range map[string]jwt.MapClaims{
		"another audience":  {"sub": "jane", "tenant": "zoo", "aud": "other"},
		"no required claim": {"sub": "jane"},
		"expired":           {"sub": "jane", "tenant": "zoo", "exp": time.Now().Add(-time.Hour).Unix()},
		"another issuer":    {"sub": "jane", "tenant": "zoo", "iss": "https://example.com"},
	} {
		if who, err := whoIs(t.Context(), s, i.token(t, claims)); err == nil {
			t.Errorf("%s: the token was accepted as that of %s", what, who.Username)
		}
	}
}

// The configuration file has the issuers, and says what anonymous users may reach. A change of the
// file takes effect while the server runs; a change for the worse does not.
func TestAuthenticationConfig(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	content := func(prefix string) []byte {
		ca, err := json.Marshal(string(i.ca))
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Appendf(nil, `
apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
jwt:
- issuer: {url: %q, audiences: [kinproc, other], audienceMatchPolicy: MatchAny, certificateAuthority: %s}
  claimMappings:
    username: {expression: "'%s' + claims.name"}
    groups: {claim: roles, prefix: ""}
anonymous:
  enabled: true
  conditions: [{path: /livez}]
`, i.url, ca, prefix)
	}
	file := writeFile(t, "authentication.yaml", content("a:"))
	s := servertest.Run(t, func(o *server.Options) { o.AuthenticationConfigFile = file })
	token := i.token(t, jwt.MapClaims{"name": "jane", "roles": []string{"dev", "ops"}, "aud": "other"})
	eventually(t, "a token of the issuer", isUser(t, s, token, "a:jane", "dev", "ops"))

	anonymous := kubernetes.NewForConfigOrDie(rest.AnonymousClientConfig(s.RESTConfig()))
	for path, want := range map[string]int{
		"/livez": http.StatusOK, "/version": http.StatusUnauthorized,
	} {
		code := 0
		anonymous.RESTClient().Get().AbsPath(path).Do(t.Context()).StatusCode(&code)
		if code != want {
			t.Errorf("%s without credentials: %d, want %d", path, code, want)
		}
	}

	for _, bytes := range [][]byte{[]byte("kind: Nonsense"), content("b:")} {
		if err := os.WriteFile(file, bytes, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "a changed file", isUser(t, s, token, "b:jane", "dev", "ops"))
}

func TestAuthenticationConfigRefused(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]string{
		"":                             "empty",
		"kind: Nonsense":               "Nonsense",
		"no: yes\napiVersion: v1":      "Kind",
		authenticationOf("http://h"):   "https",
		authenticationOf("https://h/"): "",
	} {
		file := writeFile(t, "authentication.yaml", []byte(content))
		s, err := server.New(server.Options{AuthenticationConfigFile: file})
		if err != nil {
			t.Fatal(err)
		}
		err = s.Start(t.Context())
		if want == "" {
			if err != nil {
				t.Errorf("%s: %v", content, err)
			}
			if err := s.Stop(context.Background()); err != nil {
				t.Error(err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), "Options.AuthenticationConfigFile: ") ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, not %s", content, err, want)
		}
	}
}

func authenticationOf(issuer string) string {
	return `
apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
jwt:
- issuer: {url: ` + issuer + `, audiences: [kinproc]}
  claimMappings: {username: {claim: sub, prefix: ""}}
`
}

// webhookFile writes a kubeconfig that leads to a handler.
func webhookFile(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	url, ca := serveTLS(t, h)
	config := clientcmdapi.NewConfig()
	config.Clusters["hook"] = &clientcmdapi.Cluster{Server: url, CertificateAuthorityData: ca}
	config.AuthInfos["server"] = &clientcmdapi.AuthInfo{}
	config.Contexts["hook"] = &clientcmdapi.Context{Cluster: "hook", AuthInfo: "server"}
	config.CurrentContext = "hook"
	content, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	return writeFile(t, "webhook.kubeconfig", content)
}

func TestTokenWebhook(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	file := webhookFile(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		var review authenticationv1.TokenReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.Status.Authenticated = review.Spec.Token == "secret"
		review.Status.User = authenticationv1.UserInfo{Username: "jane", Groups: []string{"dev"}}
		reply(w, review)
	})
	s := servertest.Run(t, func(o *server.Options) {
		o.TokenWebhook = server.TokenWebhookOptions{ConfigFile: file, Version: "v1"}
	})
	for range 2 {
		if err := isUser(t, s, "secret", "jane", "dev", "system:authenticated")(); err != nil {
			t.Error(err)
		}
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("the webhook was asked %d times about one token", n)
	}
	if who, err := whoIs(t.Context(), s, "other"); err == nil {
		t.Errorf("another token was accepted as that of %s", who.Username)
	}
}
