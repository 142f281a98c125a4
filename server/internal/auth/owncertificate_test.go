package auth

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"

	"github.com/kinproc/kinproc/server/internal/auth/pki"
)

// A server gets another certificate when two thirds of its year are over, and the next start finds
// that one in the directory.
func TestOwnCertificateIsRenewed(t *testing.T) {
	t.Parallel()
	for name, kept := range map[string]bool{"in memory": false, "in a directory": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := ""
			if kept {
				dir = t.TempDir()
			}
			synctest.Test(t, func(t *testing.T) { renewOwnCertificate(t, dir) })
		})
	}
}

func renewOwnCertificate(t *testing.T, dir string) {
	var keys *pki.PKI
	var err error
	if dir == "" {
		keys, err = pki.New(pki.Options{})
	} else {
		keys, err = pki.Ensure(dir, pki.Options{})
	}
	if err != nil {
		t.Fatal(err)
	}
	own, err := newOwnCertificate(keys, dir, pki.Options{}, "")
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Until(pki.Renewal(own.leaf)) - 2*time.Minute)
	controller := dynamiccertificates.NewDynamicServingCertificateController(
		&tls.Config{MinVersion: tls.VersionTLS12}, nil, own, nil, nil)
	stop := make(chan struct{})
	defer close(stop)
	go controller.Run(1, stop)
	synctest.Wait()
	before := presented(t, controller, keys.CA.Cert)
	if time.Since(before.NotBefore) < pki.Validity/2 {
		t.Error("the certificate was renewed too early")
	}
	time.Sleep(4 * time.Minute)
	after := presented(t, controller, keys.CA.Cert)
	if after.Equal(before) {
		t.Error("the certificate was not renewed")
	}
	if !own.ends().Equal(after.NotAfter) {
		t.Errorf("a certificate until %s is presented, and one until %s is checked", after.NotAfter,
			own.ends())
	}
	if dir == "" {
		return
	}
	next, err := pki.Load(dir, pki.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if string(next.Serving.Cert) != string(own.pair.Cert) {
		t.Error("the directory has another certificate than the server")
	}
}

// presented returns the certificate that the server presents to a client that trusts authority.
func presented(
	t *testing.T, server *dynamiccertificates.DynamicServingCertificateController, authority []byte,
) *x509.Certificate {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	go func() {
		_ = tls.Server(far, &tls.Config{
			MinVersion: tls.VersionTLS12, GetConfigForClient: server.GetConfigForClient,
		}).Handshake()
	}()
	client := tls.Client(near, &tls.Config{
		RootCAs: roots, ServerName: "localhost", MinVersion: tls.VersionTLS12,
	})
	if err := client.Handshake(); err != nil {
		t.Fatal(err)
	}
	return client.ConnectionState().PeerCertificates[0]
}
