package serviceaccount

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	restful "github.com/emicklei/go-restful/v3"
	"github.com/golang-jwt/jwt/v5"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/kinproc/kinproc/chain/core"
)

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func object(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-of-" + name)}
}

// cluster holds the objects that tokens refer to.
type cluster struct {
	account *corev1.ServiceAccount
	pod     *corev1.Pod
	node    *corev1.Node
	secret  *corev1.Secret
	client  *fake.Clientset
	now     time.Time
	tokens  *Tokens
}

func newCluster(t testing.TB, change func(*Options)) *cluster {
	t.Helper()
	c := &cluster{
		account: &corev1.ServiceAccount{ObjectMeta: object("shop", "bot")},
		pod:     &corev1.Pod{ObjectMeta: object("shop", "pod")},
		node:    &corev1.Node{ObjectMeta: object("", "node")},
		secret:  &corev1.Secret{ObjectMeta: object("shop", "secret")},
		now:     time.Now(),
	}
	c.client = fake.NewClientset(c.account, c.pod, c.node, c.secret)
	o := Options{Key: newKey(t), Now: func() time.Time { return c.now }}
	if change != nil {
		change(&o)
	}
	var err error
	if c.tokens, err = New(o); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *cluster) authenticate(
	ctx context.Context, token string,
) (*authenticator.Response, bool, error) {
	return c.tokens.Authenticator(FromClient(c.client.CoreV1())).AuthenticateToken(ctx, token)
}

func (c *cluster) issue(t testing.TB, token core.Token) string {
	t.Helper()
	token.Account = c.account
	if token.Audiences == nil {
		token.Audiences = c.tokens.Audiences()
	}
	if token.Lifetime == 0 {
		token.Lifetime = time.Hour
	}
	signed, err := c.tokens.Issue(t.Context(), token)
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

func TestBoundToken(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nil)
	signed := c.issue(t, core.Token{Pod: c.pod, Node: c.node})
	response, ok, err := c.authenticate(t.Context(), signed)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	u := response.User
	if u.GetName() != "system:serviceaccount:shop:bot" || u.GetUID() != "uid-of-bot" ||
		strings.Join(u.GetGroups(), " ") != "system:serviceaccounts system:serviceaccounts:shop" {
		t.Errorf("authenticated as %v", u)
	}
	extra := u.GetExtra()
	if id := extra["authentication.kubernetes.io/credential-id"]; len(id) != 1 ||
		!strings.HasPrefix(id[0], "JTI=") {
		t.Errorf("credential %v", id)
	}
	delete(extra, "authentication.kubernetes.io/credential-id")
	if want := map[string][]string{
		"authentication.kubernetes.io/pod-name":  {"pod"},
		"authentication.kubernetes.io/pod-uid":   {"uid-of-pod"},
		"authentication.kubernetes.io/node-name": {"node"},
		"authentication.kubernetes.io/node-uid":  {"uid-of-node"},
	}; !reflect.DeepEqual(extra, want) {
		t.Errorf("extra %v", extra)
	}
	if want := (authenticator.Audiences{DefaultIssuer}); !reflect.DeepEqual(response.Audiences, want) {
		t.Errorf("audiences %v", response.Audiences)
	}

	// The layout must be the same as kube-apiserver's, because clients read it.
	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(signed, ".")[1])
	if err != nil {
		t.Fatal(err)
	}
	var said map[string]any
	if err := json.Unmarshal(payload, &said); err != nil {
		t.Fatal(err)
	}
	if want := map[string]any{
		"namespace":      "shop",
		"serviceaccount": map[string]any{"name": "bot", "uid": "uid-of-bot"},
		"pod":            map[string]any{"name": "pod", "uid": "uid-of-pod"},
		"node":           map[string]any{"name": "node", "uid": "uid-of-node"},
	}; !reflect.DeepEqual(said["kubernetes.io"], want) {
		t.Errorf("the token says %v", said["kubernetes.io"])
	}
	if said["sub"] != "system:serviceaccount:shop:bot" || said["iss"] != DefaultIssuer ||
		said["exp"].(float64)-said["iat"].(float64) != 3600 {
		t.Errorf("the token says %v", said)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	now := metav1.Now()
	long := metav1.NewTime(now.Add(-2 * deletionLeeway))
	for name, test := range map[string]struct {
		token  core.Token
		change func(t *testing.T, c *cluster)
		want   string
	}{
		"fine": {change: func(*testing.T, *cluster) {}},
		"expired": {
			change: func(_ *testing.T, c *cluster) { c.now = c.now.Add(time.Hour + time.Second) },
			want:   "expired",
		},
		"account gone": {change: func(t *testing.T, c *cluster) {
			check(t,
				c.client.CoreV1().ServiceAccounts("shop").Delete(t.Context(), "bot", metav1.DeleteOptions{}))
		}, want: "not found"},
		"account made anew": {change: func(t *testing.T, c *cluster) {
			c.account.UID = "another"
			_, err := c.client.CoreV1().ServiceAccounts("shop").Update(t.Context(), c.account,
				metav1.UpdateOptions{})
			check(t, err)
		}, want: "recreated"},
		"pod gone": {
			token:  core.Token{Pod: &corev1.Pod{ObjectMeta: object("shop", "other")}},
			change: func(*testing.T, *cluster) {},
			want:   "invalidated",
		},
		"pod made anew": {
			token:  core.Token{Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod", UID: "old"}}},
			change: func(*testing.T, *cluster) {},
			want:   "another pod",
		},
		"pod being deleted": {
			token: core.Token{Pod: &corev1.Pod{ObjectMeta: object("shop", "pod")}},
			change: func(t *testing.T, c *cluster) {
				deletePod(t, c, &now)
			},
		},
		"pod deleted": {
			token: core.Token{Pod: &corev1.Pod{ObjectMeta: object("shop", "pod")}},
			change: func(t *testing.T, c *cluster) {
				deletePod(t, c, &long)
			},
			want: "invalidated",
		},
		"secret gone": {
			token:  core.Token{Secret: &corev1.Secret{ObjectMeta: object("shop", "x")}},
			change: func(*testing.T, *cluster) {},
			want:   "invalidated",
		},
		"node gone": {
			token:  core.Token{Node: &corev1.Node{ObjectMeta: object("", "x")}},
			change: func(*testing.T, *cluster) {},
			want:   "invalidated",
		},
		"node there": {
			token:  core.Token{Node: &corev1.Node{ObjectMeta: object("", "node")}},
			change: func(*testing.T, *cluster) {},
		},
		"audience": {
			token:  core.Token{Audiences: []string{"vault"}},
			change: func(*testing.T, *cluster) {},
			want:   `["vault"]`,
		},
		"another key": {change: func(t *testing.T, c *cluster) {
			other := newCluster(t, nil)
			c.tokens = other.tokens
		}, want: "signature"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, nil)
			signed := c.issue(t, test.token)
			test.change(t, c)
			_, ok, err := c.authenticate(t.Context(), signed)
			if test.want == "" && (!ok || err != nil) {
				t.Errorf("token rejected: %v", err)
			}
			if test.want != "" && (ok || err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got %t, %v; want %q", ok, err, test.want)
			}
		})
	}
}

func deletePod(t *testing.T, c *cluster, at *metav1.Time) {
	t.Helper()
	pod := c.pod.DeepCopy()
	pod.DeletionTimestamp = at
	check(t, c.client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("pods"), pod, "shop"))
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestAudiencesOfTheRequest(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nil)
	signed := c.issue(t, core.Token{Audiences: []string{"vault", "db"}})
	ctx := authenticator.WithAudiences(t.Context(), authenticator.Audiences{"db", "x"})
	response, ok, err := c.authenticate(ctx, signed)
	if !ok || err != nil || len(response.Audiences) != 1 || response.Audiences[0] != "db" {
		t.Errorf("%v %t %v", response, ok, err)
	}
}

func TestTokensOfOthersAreLeftToOthers(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nil)
	other := newCluster(t, func(o *Options) { o.Issuers = []string{"https://elsewhere.example"} })
	for _, token := range []string{"", "bogus", "a.b.c", other.issue(t, core.Token{})} {
		if _, ok, err := c.authenticate(t.Context(), token); ok || err != nil {
			t.Errorf("%.20q: %t %v", token, ok, err)
		}
	}
	// A token without a signature is rejected.
	none := jwt.NewWithClaims(jwt.SigningMethodNone, jwt.MapClaims{"iss": DefaultIssuer})
	unsigned, err := none.SignedString(jwt.UnsafeAllowNoneSignatureType)
	check(t, err)
	if _, ok, err := c.authenticate(t.Context(), unsigned); ok || err == nil {
		t.Errorf("an unsigned token was accepted: %t %v", ok, err)
	}
}

func TestExtension(t *testing.T) {
	t.Parallel()
	c := newCluster(t, func(o *Options) { o.Extend = true })
	extended := c.issue(t, core.Token{Pod: c.pod, Lifetime: warnOnlyLifetime})
	plain := c.issue(t, core.Token{Pod: c.pod, Lifetime: warnOnlyLifetime + time.Second})
	c.now = c.now.Add(300 * 24 * time.Hour)
	if _, ok, err := c.authenticate(t.Context(), extended); !ok || err != nil {
		t.Errorf("an extended token was rejected: %v", err)
	}
	if _, ok, err := c.authenticate(t.Context(), plain); ok || err == nil {
		t.Error("a token with a specific requested lifetime was extended")
	}
}

func TestTokenInSecret(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nil)
	signed, err := c.tokens.IssueForSecret(c.account, c.secret)
	check(t, err)
	if _, ok, err := c.authenticate(t.Context(), signed); ok || err == nil {
		t.Error("a token that its secret does not contain was accepted")
	}
	c.secret.Data = map[string][]byte{"token": []byte(signed)}
	_, err = c.client.CoreV1().Secrets("shop").Update(t.Context(), c.secret, metav1.UpdateOptions{})
	check(t, err)
	response, ok, err := c.authenticate(t.Context(), signed)
	if !ok || err != nil || response.User.GetName() != "system:serviceaccount:shop:bot" {
		t.Errorf("%v %t %v", response, ok, err)
	}
	used, err := c.client.CoreV1().Secrets("shop").Get(t.Context(), c.secret.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if day := used.Labels[LastUsed]; day != c.tokens.options.Now().UTC().Format(time.DateOnly) {
		t.Errorf("the token was last used on %q, says its secret", day)
	}
	c.secret.Labels = map[string]string{InvalidSince: "2026-01-01"}
	_, err = c.client.CoreV1().Secrets("shop").Update(t.Context(), c.secret, metav1.UpdateOptions{})
	check(t, err)
	if _, ok, err := c.authenticate(t.Context(), signed); ok || err == nil ||
		!strings.Contains(err.Error(), "2026-01-01") {
		t.Errorf("%t %v", ok, err)
	}
}

func TestRotation(t *testing.T) {
	t.Parallel()
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	check(t, err)
	old := newCluster(t, func(o *Options) { o.Key = rsaKey })
	signed := old.issue(t, core.Token{})
	current := newCluster(t, func(o *Options) { o.PublicKeys = []crypto.PublicKey{rsaKey.Public()} })
	if _, ok, err := current.authenticate(t.Context(), signed); !ok || err != nil {
		t.Errorf("a token signed with the previous key was rejected: %v", err)
	}
}

func TestDiscovery(t *testing.T) {
	t.Parallel()
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	check(t, err)
	key := newKey(t)
	c := newCluster(t, func(o *Options) {
		o.Key, o.PublicKeys = key, []crypto.PublicKey{rsaKey.Public()}
	})
	services, err := c.tokens.WebServices("10.0.0.1:6443")
	check(t, err)
	container := restful.NewContainer()
	for _, service := range services {
		container.Add(service)
	}
	get := func(path string, into any) http.Header {
		t.Helper()
		w := httptest.NewRecorder()
		container.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		check(t, json.Unmarshal(w.Body.Bytes(), into))
		return w.Header()
	}
	var configuration struct {
		Issuer     string   `json:"issuer"`
		URI        string   `json:"jwks_uri"`
		Algorithms []string `json:"id_token_signing_alg_values_supported"`
	}
	get(ConfigurationPath, &configuration)
	if configuration.Issuer != DefaultIssuer ||
		configuration.URI != "https://10.0.0.1:6443"+KeysPath ||
		strings.Join(configuration.Algorithms, " ") != "ES256 RS256" {
		t.Errorf("%+v", configuration)
	}
	var set struct{ Keys []jwk }
	if header := get(KeysPath, &set); header.Get("Content-Type") != "application/jwk-set+json" ||
		header.Get("Cache-Control") == "" {
		t.Errorf("%v", header)
	}
	number := func(s string) *big.Int {
		b, err := base64.RawURLEncoding.DecodeString(s)
		check(t, err)
		return new(big.Int).SetBytes(b)
	}
	if len(set.Keys) != 2 || number(set.Keys[1].N).Cmp(rsaKey.N) != 0 ||
		number(set.Keys[1].E).Int64() != int64(rsaKey.E) {
		t.Fatalf("%+v", set)
	}
	point, err := key.PublicKey.Bytes()
	check(t, err)
	if got := append([]byte{4}, append(number(set.Keys[0].X).FillBytes(make([]byte, 32)),
		number(set.Keys[0].Y).FillBytes(make([]byte, 32))...)...); !reflect.DeepEqual(got, point) {
		t.Errorf("the published point is %x, want %x", got, point)
	}
	token, _, err := jwt.NewParser().ParseUnverified(c.issue(t, core.Token{}), jwt.MapClaims{})
	check(t, err)
	if token.Header["kid"] != set.Keys[0].ID {
		t.Errorf("tokens have key ID %v, the key set has %s", token.Header["kid"], set.Keys[0].ID)
	}
}

func BenchmarkIssue(b *testing.B) {
	c := newCluster(b, nil)
	token := core.Token{Account: c.account, Audiences: c.tokens.Audiences(), Lifetime: time.Hour}
	for b.Loop() {
		if _, err := c.tokens.Issue(b.Context(), token); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkVerify(b *testing.B) {
	c := newCluster(b, nil)
	signed := c.issue(b, core.Token{})
	a := c.tokens.Authenticator(nil)
	for b.Loop() {
		if _, ok, err := a.AuthenticateToken(b.Context(), signed); !ok || err != nil {
			b.Fatal(err)
		}
	}
}
