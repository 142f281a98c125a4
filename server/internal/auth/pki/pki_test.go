package pki

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/clientcmd"
)

func TestServesAndAuthenticates(t *testing.T) {
	t.Parallel()
	p, err := New(Options{Names: []string{"kinproc.example", "10.0.0.1", "localhost"}})
	if err != nil {
		t.Fatal(err)
	}
	alice, err := p.CA.Client("alice", []string{"devs", "ops"}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	got := shakeHands(t, p, alice)
	if groups := sets.New(got.Subject.Organization...); got.Subject.CommonName != "alice" ||
		!groups.Equal(sets.New("devs", "ops")) {
		t.Errorf("the server sees %s", got.Subject)
	}
	if left := time.Until(got.NotAfter); left > time.Hour || left < 59*time.Minute {
		t.Errorf("a certificate for one hour is valid for %s", left)
	}
	if admin := shakeHands(t, p, p.Admin); strings.Join(admin.Subject.Organization, " ") !=
		"system:masters" {
		t.Errorf("the admin's groups are %s", admin.Subject.Organization)
	}
	serving, err := p.Serving.TLS()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"kinproc.example", "10.0.0.1", "127.0.0.1", "::1", "kubernetes.default.svc.cluster.local",
	} {
		if err := serving.Leaf.VerifyHostname(name); err != nil {
			t.Error(err)
		}
	}
	proxy, err := p.Proxy.TLS()
	if err != nil {
		t.Fatal(err)
	}
	if err := proxy.Leaf.CheckSignatureFrom(p.CA.cert); err == nil {
		t.Error("the front proxy's certificate was signed by the cluster's authority, " +
			"want the front proxy's authority")
	}
}

// shakeHands returns the client certificate as seen by a server that trusts the cluster's
// authority.
func shakeHands(t *testing.T, p *PKI, client Pair) *x509.Certificate {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(p.CA.Cert)
	serving, err := p.Serving.TLS()
	if err != nil {
		t.Fatal(err)
	}
	own, err := client.TLS()
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	seen := make(chan *x509.Certificate, 1)
	server := &http.Server{
		Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			seen <- r.TLS.PeerCertificates[0]
		}),
		TLSConfig: &tls.Config{
			Certificates: []tls.Certificate{serving},
			ClientCAs:    pool,
			ClientAuth:   tls.RequireAndVerifyClientCert,
		},
	}
	served := make(chan error, 1)
	go func() { served <- server.ServeTLS(listener, "", "") }()
	defer func() { server.Close(); <-served }()
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{own}},
	}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Get("https://" + listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		t.Fatal(err)
	}
	return <-seen
}

func TestDirectoryKeepsAndRenews(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "pki")
	now := time.Now()
	o := Options{Now: func() time.Time { return now }}
	first, err := Ensure(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 12 {
		t.Errorf("got %d files, want 12: %v", len(entries), entries)
	}
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(entry.Name(), ".key") && info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %s", entry.Name(), info.Mode())
		}
	}

	ensure := func() *PKI {
		t.Helper()
		p, err := Ensure(dir, o)
		if err != nil {
			t.Fatal(err)
		}
		if !samePublicKey(p.ServiceAccountKey.Public(), first.ServiceAccountKey.Public()) ||
			!samePublicKey(p.CA.key.Public(), first.CA.key.Public()) {
			t.Error("a key that others rely on was replaced")
		}
		return p
	}
	if again := ensure(); string(again.Serving.Cert) != string(first.Serving.Cert) ||
		string(again.CA.Cert) != string(first.CA.Cert) {
		t.Error("usable certificates were reissued")
	}
	o.Names = []string{"new.example"}
	named := ensure()
	if string(named.Serving.Cert) == string(first.Serving.Cert) ||
		string(named.Admin.Cert) != string(first.Admin.Cert) {
		t.Error("a new name must renew the serving certificate only")
	}
	now = now.Add(Validity * 3 / 4)
	renewed := ensure()
	if string(renewed.Admin.Cert) == string(first.Admin.Cert) {
		t.Error("an expiring certificate was not renewed")
	}
	now = now.Add(AuthorityValidity)
	if _, err := Load(dir, o); err == nil || !strings.Contains(err.Error(), "ca.crt") {
		t.Errorf("load an expired authority: %v", err)
	}
	late := ensure()
	if string(late.CA.Cert) == string(first.CA.Cert) {
		t.Error("an expired authority was not renewed")
	}
	if _, err := Load(dir, o); err != nil {
		t.Error(err)
	}
}

func TestDirectoryRefusals(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		spoil func(dir string) error
		want  []string
	}{
		"key lost": {func(dir string) error {
			return os.Remove(filepath.Join(dir, "ca.key"))
		}, []string{"ca.crt", "ca.key", "restore"}},
		"key spoiled": {func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "sa.key"), []byte("x"), 0o600)
		}, []string{"sa.key", "restore"}},
		"cert spoiled": {func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "ca.crt"), []byte("x"), 0o600)
		}, []string{"ca.crt", "restore"}},
		"authorities mix": {func(dir string) error {
			return os.Rename(filepath.Join(dir, "front-proxy-ca.key"), filepath.Join(dir, "ca.key"))
		}, []string{"ca.crt", "belong together"}},
		"leaf as the root": {func(dir string) error {
			return os.Rename(filepath.Join(dir, "admin.crt"), filepath.Join(dir, "ca.crt"))
		}, []string{"ca.crt", "authority"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if _, err := Ensure(dir, Options{}); err != nil {
				t.Fatal(err)
			}
			if err := test.spoil(dir); err != nil {
				t.Fatal(err)
			}
			_, err := Ensure(dir, Options{})
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not contain %q", err, want)
				}
			}
		})
	}
}

func TestDirectoryHeals(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, err := Ensure(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	// An interrupted start can leave an authority's key without its certificate, and a leaf
	// certificate that does not match its key.
	if err := os.Remove(filepath.Join(dir, "ca.crt")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "admin.key"),
		filepath.Join(dir, "apiserver.key")); err != nil {
		t.Fatal(err)
	}
	second, err := Ensure(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if !samePublicKey(first.CA.key.Public(), second.CA.key.Public()) {
		t.Error("the authority's key was replaced")
	}
	shakeHands(t, second, second.Admin)
}

func TestKubeconfig(t *testing.T) {
	t.Parallel()
	p, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := WriteKubeconfig(path, Kubeconfig("kinproc", "https://127.0.0.1:6443", p.CA.Cert,
		"admin", p.Admin.AuthInfo())); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	if config.Host != "https://127.0.0.1:6443" || string(config.CertData) != string(p.Admin.Cert) ||
		string(config.CAData) != string(p.CA.Cert) {
		t.Errorf("read back %s", config)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, error %v", info.Mode(), err)
	}
}

func BenchmarkNew(b *testing.B) {
	for b.Loop() {
		if _, err := New(Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEnsureReuse(b *testing.B) {
	dir := b.TempDir()
	for b.Loop() {
		if _, err := Ensure(dir, Options{}); err != nil {
			b.Fatal(err)
		}
	}
}
