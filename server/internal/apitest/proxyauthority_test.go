package apitest

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kinproc/kinproc/server"
)

// testAuthority is a certificate authority. Several authorities may share a key.
type testAuthority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// newTestAuthority returns an authority that is signed by signer, or by itself if signer is nil. If
// key is nil, it generates a key.
func newTestAuthority(
	t *testing.T, name string, key crypto.Signer, signer *testAuthority,
) *testAuthority {
	t.Helper()
	var err error
	if key == nil {
		if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
			t.Fatal(err)
		}
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	a := &testAuthority{key: key, cert: &x509.Certificate{
		SerialNumber: serial.Add(serial, big.NewInt(1)),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}}
	if signer == nil {
		signer = a
	}
	der, err := x509.CreateCertificate(rand.Reader, a.cert, signer.cert, key.Public(), signer.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return a
}

// bundle writes the certificates of authorities to a file.
func bundle(t *testing.T, authorities ...*testAuthority) string {
	t.Helper()
	var data []byte
	for _, a := range authorities {
		data = append(data, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})...)
	}
	file := filepath.Join(t.TempDir(), "bundle.crt")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestProxiesAreNoClients starts control planes whose authorities for front proxies also sign
// client certificates. Start rejects that unless the proxies' allowed names are set.
func TestProxiesAreNoClients(t *testing.T) {
	t.Parallel()
	people := newTestAuthority(t, "people", nil, nil)
	others := newTestAuthority(t, "others", nil, nil)
	renewed := newTestAuthority(t, "people", people.key, nil)
	namesake := newTestAuthority(t, "people", nil, nil)
	below := newTestAuthority(t, "below", nil, people)
	dir := filepath.Join(t.TempDir(), "data")
	ownCA := filepath.Join(dir, "pki", "ca.crt")
	start := func(t *testing.T, o server.Options) error {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		s, err := server.New(o)
		if err != nil {
			return err
		}
		if err := s.Start(ctx); err != nil {
			return err
		}
		return s.Stop(context.WithoutCancel(ctx))
	}
	if err := start(t, server.Options{DataDir: dir}); err != nil { // creates its own authority
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		clients, proxies, dir string
		names                 []string
		refusal               string // part of the error, or empty if it starts
	}{
		"the same file": {
			clients: bundle(t, people),
			proxies: bundle(t, people),
			refusal: `Options.ClientCAFile (authority "CN=people")`,
		},
		"one among others": {
			clients: bundle(t, others, people),
			proxies: bundle(t, namesake, people),
			refusal: `"CN=people"`,
		},
		"the same key": {
			clients: bundle(t, people),
			proxies: bundle(t, renewed),
			refusal: `"CN=people"`,
		},
		"the one that signed the other": {
			clients: bundle(t, below),
			proxies: bundle(t, people),
			refusal: `"CN=below"`,
		},
		"kinproc's own": {
			proxies: ownCA,
			dir:     dir,
			refusal: `kinproc itself (authority "CN=kinproc-ca")`,
		},
		"the same with names": {
			clients: bundle(t, people),
			proxies: bundle(t, people),
			names:   []string{"proxy"},
		},
		"one below the clients'":   {clients: bundle(t, people), proxies: bundle(t, below)},
		"a namesake":               {clients: bundle(t, people), proxies: bundle(t, namesake)},
		"kinproc's own, elsewhere": {proxies: ownCA},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := start(t, server.Options{
				DataDir: test.dir, ClientCAFile: test.clients,
				RequestHeader: server.RequestHeaderOptions{
					ClientCAFile: test.proxies,
					AllowedNames: test.names,
				},
			})
			if test.refusal == "" {
				if err != nil {
					t.Errorf("start failed: %v", err)
				}
				return
			}
			if err == nil {
				t.Fatal("start succeeded, want an error")
			}
			for _, part := range []string{
				test.refusal, "Options.RequestHeader.ClientCAFile", "Options.RequestHeader.AllowedNames",
			} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("got error %q, want it to contain %q", err, part)
				}
			}
		})
	}
}
