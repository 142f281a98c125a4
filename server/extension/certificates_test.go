package extension

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kinproc/kinproc/chain/kind"
	"github.com/kinproc/kinproc/server/servertest"
)

// A short-lived certificate is renewed while the server runs. Its authority stays the same.
func TestRenewal(t *testing.T) {
	t.Parallel()
	for name, dir := range map[string]string{"memory": "", "directory": t.TempDir()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plane := servertest.Run(t, servertest.WithoutControllers)
			s, err := New(Options{
				Groups: []kind.Group{probes()}, RESTConfig: plane.RESTConfig(), CertDir: dir,
				validity: 15 * time.Second, // five of them are left when it is renewed
			})
			if err != nil {
				t.Fatal(err)
			}
			authority := s.Registration().APIServices[0].Spec.CABundle
			ctx, cancel := context.WithCancel(context.Background())
			ended := make(chan error, 1)
			go func() { ended <- s.Run(ctx) }()
			defer func() {
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			}()
			roots := x509.NewCertPool()
			roots.AppendCertsFromPEM(authority)
			first := served(t, s, roots)
			if err := wait.PollUntilContextCancel(t.Context(), 100*time.Millisecond, true,
				func(context.Context) (bool, error) {
					return !served(t, s, roots).Equal(first), nil
				}); err != nil {
				t.Fatal(err)
			}
			if now := s.Registration().APIServices[0].Spec.CABundle; !bytes.Equal(now, authority) {
				t.Error("the authority has changed")
			}
			if dir == "" {
				return
			}
			again, err := newCertificates(dir, s.names(), 0)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(bytes.TrimSpace(again.CABundle()), authority) {
				t.Error("the next start has another authority")
			}
		})
	}
}

// served returns the certificate that a server presents. The handshake fails if it has expired.
func served(t *testing.T, s *Server, roots *x509.CertPool) *x509.Certificate {
	t.Helper()
	dialer := tls.Dialer{Config: &tls.Config{
		RootCAs: roots, ServerName: "probe.default.svc", MinVersion: tls.VersionTLS12,
	}}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	conn, err := dialer.DialContext(ctx, "tcp", s.Addr().String())
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	defer conn.Close()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0]
}
