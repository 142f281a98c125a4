package cli_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"os"
	"strings"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kinproc/kinproc/embed"
	"github.com/kinproc/kinproc/server/internal/auth/pki"
)

// This file holds the script commands that start or act as the server's peers: clients, etcd and
// extension API servers.

// serverOf KUBECONFIG sets $SERVER to the URL of the current context's server.
func serverOf(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: serverof kubeconfig")
	}
	config, err := clientcmd.BuildConfigFromFlags("", ts.MkAbs(args[0]))
	ts.Check(err)
	ts.Setenv("SERVER", config.Host)
}

// certificates writes these files to the working directory: ca.crt, an authority's certificate;
// jane.crt and jane.key, a client certificate signed by it (user jane, group developers);
// serving.crt and serving.key, a certificate signed by it for a server at 127.0.0.1; sa.key and
// sa.pub, a key pair for signing tokens.
func certificates(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: certificates")
	}
	p, err := pki.New(pki.Options{})
	ts.Check(err)
	jane, err := p.CA.Client("jane", []string{"developers"}, 0)
	ts.Check(err)
	for name, data := range map[string][]byte{
		"ca.crt":      p.CA.Cert,
		"jane.crt":    jane.Cert,
		"jane.key":    jane.Key,
		"serving.crt": p.Serving.Cert,
		"serving.key": p.Serving.Key,
		"sa.key":      jane.Key,
		"sa.pub":      publicKey(ts, jane.Cert),
	} {
		ts.Check(os.WriteFile(ts.MkAbs(name), data, 0o600))
	}
}

func publicKey(ts *testscript.TestScript, cert []byte) []byte {
	block, _ := pem.Decode(cert)
	parsed, err := x509.ParseCertificate(block.Bytes)
	ts.Check(err)
	der, err := x509.MarshalPKIXPublicKey(parsed.PublicKey)
	ts.Check(err)
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

// request URL [CERT KEY [HEADER:VALUE...]] gets a URL with a client certificate and headers, and
// prints the status and the body.
func request(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 || len(args) == 2 {
		ts.Fatalf("usage: request url [cert key [header:value...]]")
	}
	config := &tls.Config{InsecureSkipVerify: true} // the script chooses the server
	if len(args) > 2 {
		pair, err := tls.LoadX509KeyPair(ts.MkAbs(args[1]), ts.MkAbs(args[2]))
		ts.Check(err)
		config.Certificates = []tls.Certificate{pair}
	}
	r, err := http.NewRequest(http.MethodGet, args[0], nil)
	ts.Check(err)
	for _, header := range args[min(3, len(args)):] {
		name, value, _ := strings.Cut(header, ":")
		r.Header.Add(name, value)
	}
	transport := &http.Transport{TLSClientConfig: config}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Do(r)
	ts.Check(err)
	defer resp.Body.Close()
	fmt.Fprintln(ts.Stdout(), resp.Status)
	_, err = io.Copy(ts.Stdout(), resp.Body)
	ts.Check(err)
}

// browse FILE opens the link in a file, as a browser that has not been there does, and prints the
// status and the body. It fails if nobody serves the link.
func browse(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: browse file")
	}
	_, link, ok := strings.Cut(ts.ReadFile(args[0]), "http://")
	if !ok {
		ts.Fatalf("%s has no link", args[0])
	}
	link, _, _ = strings.Cut(link, "\n")
	jar, err := cookiejar.New(nil)
	ts.Check(err)
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport, Jar: jar}).Get("http://" + link)
	if neg != (err != nil) {
		ts.Fatalf("browse: %v", err)
	}
	if err != nil {
		return
	}
	defer resp.Body.Close()
	fmt.Fprintln(ts.Stdout(), resp.Status)
	_, err = io.Copy(ts.Stdout(), resp.Body)
	ts.Check(err)
}

// externalEtcd sets $ETCD to the URL of an etcd outside of the program. By default it listens on a
// Unix socket. With the argument tls it listens on a port and requires a client certificate signed
// by the authority of the command certificates.
func externalEtcd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 1 {
		ts.Fatalf("usage: etcd [tls]")
	}
	e, err := embed.Start(context.Background(), embed.Options{Ephemeral: true, ListenClient: true})
	ts.Check(err)
	ts.Defer(func() { _ = e.Stop(context.Background()) })
	endpoint := e.Endpoints()[0]
	if len(args) == 1 {
		endpoint = "https://" + front(ts, strings.TrimPrefix(endpoint, "unix://"))
	}
	ts.Setenv("ETCD", endpoint)
}

// front accepts TLS connections with client certificates and forwards them to a Unix socket.
func front(ts *testscript.TestScript, socket string) (address string) {
	pair, err := tls.LoadX509KeyPair(ts.MkAbs("serving.crt"), ts.MkAbs("serving.key"))
	ts.Check(err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(ts.ReadFile("ca.crt")))
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{pair},
		ClientCAs:    roots,
		ClientAuth:   tls.RequireAndVerifyClientCert,
		NextProtos:   []string{"h2"},
	})
	ts.Check(err)
	var running sync.WaitGroup
	stop := make(chan struct{})
	running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { pipe(conn, socket, stop) })
		}
	})
	ts.Defer(func() {
		close(stop)
		l.Close()
		running.Wait()
	})
	return l.Addr().String()
}

// pipe connects conn to a Unix socket until either side closes or stop is closed.
func pipe(conn net.Conn, socket string, stop <-chan struct{}) {
	behind, err := net.Dial("unix", socket)
	if err != nil {
		conn.Close()
		return
	}
	ended := make(chan error, 2)
	go func() { _, err := io.Copy(behind, conn); ended <- err }()
	go func() { _, err := io.Copy(conn, behind); ended <- err }()
	select {
	case <-ended:
		ended <- nil // replaces the value just received
	case <-stop:
	}
	conn.Close()
	behind.Close()
	<-ended
	<-ended
}

// extension sets $EXTENSION_PORT to the port of an extension API server at localhost for version v1
// of group ext.example.com. Its one resource, echoes, returns the name in the aggregator's client
// certificate and the user on whose behalf it called.
func extension(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: extension")
	}
	mux := http.NewServeMux()
	answer := func(format string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			certificate := "nobody"
			if len(r.TLS.PeerCertificates) > 0 {
				certificate = r.TLS.PeerCertificates[0].Subject.CommonName
			}
			known := strings.NewReplacer("CERTIFICATE", certificate, "USER", r.Header.Get("X-Remote-User"))
			_, _ = io.WriteString(w, known.Replace(format))
		}
	}
	mux.HandleFunc("/apis/ext.example.com/v1", answer(
		`{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"ext.example.com/v1","resources":[
		{"name":"echoes","singularName":"echo","namespaced":false,"kind":"Echo","verbs":["get"]}]}`))
	mux.HandleFunc("/apis/ext.example.com/v1/echoes/", answer(
		`{"kind":"Echo","apiVersion":"ext.example.com/v1","metadata":{"name":"one"},
			"certificate":"CERTIFICATE","user":"USER"}`))
	s := httptest.NewUnstartedServer(mux)
	s.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	s.StartTLS()
	ts.Defer(s.Close)
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	ts.Check(err)
	ts.Setenv("EXTENSION_PORT", port)
}
