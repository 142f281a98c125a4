// Plain is an extension API server in plain net/http, to show that there is no magic in one. It
// serves discovery documents and keeps greetings in memory. See README.md.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	_ "embed"
	"encoding/base64"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"time"
)

// registration holds the manifests that register the server with kinproc, with placeholders for the
// server's port and certificate.
//
//go:embed registration.yaml
var registration string

func main() {
	listen := flag.String("listen", "127.0.0.1:8443", "address to listen on")
	proxyCA := flag.String("requestheader-client-ca-file", "",
		"certificate authority of the aggregator's client certificate")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	l, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	s, err := newServer(*proxyCA)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(s.registration(l.Addr()))
	if err := s.serve(ctx, l); err != nil {
		log.Fatal(err)
	}
}

// server is the HTTP server with its certificate.
type server struct {
	http.Server
	cert []byte // PEM
}

// newServer returns a server with a new certificate. It accepts requests with a client certificate
// of the aggregator, signed by the CA in the file proxyCA.
func newServer(proxyCA string) (*server, error) {
	ca, err := os.ReadFile(proxyCA)
	if err != nil {
		return nil, fmt.Errorf("read the aggregator's certificate authority: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("no certificate in %s", proxyCA)
	}
	cert, pair, err := newCertificate("plain.default.svc")
	if err != nil {
		return nil, err
	}
	s := &server{cert: cert}
	s.Handler = onlyProxy("front-proxy-client", newAPI())
	s.TLSConfig = &tls.Config{
		Certificates: []tls.Certificate{pair},
		ClientAuth:   tls.VerifyClientCertIfGiven,
		ClientCAs:    pool,
	}
	return s, nil
}

// registration returns the manifests that register the server with kinproc.
func (s *server) registration(addr net.Addr) string {
	_, port, _ := net.SplitHostPort(addr.String()) // a listener's address always has a port
	return strings.NewReplacer("PORT", port, "CA_BUNDLE", base64.StdEncoding.EncodeToString(s.cert)).
		Replace(registration)
}

// serve serves requests until ctx is done.
func (s *server) serve(ctx context.Context, l net.Listener) error {
	ended := context.AfterFunc(ctx, func() { s.Close() })
	defer ended()
	s.ReadHeaderTimeout = 10 * time.Second
	if err := s.ServeTLS(l, "", ""); err != http.ErrServerClosed {
		return err
	}
	return nil
}

// onlyProxy rejects requests that do not come from the aggregator. The aggregator has authenticated
// and authorized the user and passes the user's name in X-Remote-User. Any other client could send
// any name.
func onlyProxy(name string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TLS.VerifiedChains) == 0 || r.TLS.PeerCertificates[0].Subject.CommonName != name {
			writeStatus(w, http.StatusUnauthorized, "Unauthorized",
				"requests must come through the aggregator")
			return
		}
		log.Printf("%s %s by %s", r.Method, r.URL, r.Header.Get("X-Remote-User"))
		next.ServeHTTP(w, r)
	})
}
