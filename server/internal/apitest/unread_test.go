package apitest

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest"
)

// unreadListener counts the bytes that are read from its connections.
type unreadListener struct {
	net.Listener
	read atomic.Int64
}

func (l *unreadListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &unreadConn{Conn: conn, read: &l.read}, nil
}

type unreadConn struct {
	net.Conn
	read *atomic.Int64
}

func (c *unreadConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.read.Add(int64(n))
	return n, err
}

// TestUnreadBodies sends requests that are rejected and whose bodies never end.
func TestUnreadBodies(t *testing.T) {
	t.Parallel()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener := &unreadListener{Listener: inner}
	s := servertest.Run(t, servertest.WithoutControllers, func(o *server.Options) {
		o.Listener = listener
	})
	config := &rest.Config{
		Host:            s.URL(),
		TLSClientConfig: rest.TLSClientConfig{CAData: s.RESTConfig().CAData},
	}
	trusted, err := rest.TLSConfigFor(config)
	if err != nil {
		t.Fatal(err)
	}
	for who, refused := range map[string]struct {
		header string
		code   int
	}{
		"anonymous":     {"", http.StatusForbidden},
		"unknown token": {"Authorization: Bearer nobody\r\n", http.StatusUnauthorized},
	} {
		for how, header := range map[string]string{
			"a short body":         "Content-Length: 1000\r\n",
			"a long body":          "Content-Length: 1000000000\r\n",
			"an awaited body":      "Content-Length: 1000\r\nExpect: 100-continue\r\n",
			"a body without end":   "Transfer-Encoding: chunked\r\n",
			"a body that goes on":  "Transfer-Encoding: chunked\r\n",
			"a long one that does": "Content-Length: 1000000000\r\n",
		} {
			before := listener.read.Load()
			code := unreadRefusal(t, trusted, inner.Addr().String(), refused.header+header,
				strings.HasSuffix(how, "goes on") || strings.HasSuffix(how, "does"))
			if code != refused.code {
				t.Errorf("%s with %s: %d", who, how, code)
			}
			// net/http reads up to 256 KiB after the response.
			if read := listener.read.Load() - before; read > 300<<10 {
				t.Errorf("%s with %s: read %d bytes", who, how, read)
			}
		}
	}

	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	client.Timeout = unreadRefusedWithin
	body, end := io.Pipe()
	defer end.Close()
	response, err := client.Post(s.URL()+"/api/v1/namespaces/default/configmaps", asYAML, body)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusForbidden || response.ProtoMajor != 2 {
		t.Errorf("over %s: %s", response.Proto, response.Status)
	}
}

// unreadRefusedWithin is how long a rejection may take on a busy machine. It is shorter than the
// server's timeout of requests.
const unreadRefusedWithin = 30 * time.Second

// unreadRefusal sends a request over HTTP/1.1 and returns the status code of the response. Its body
// is empty or, if goesOn is set, continues for as long as the server reads it.
func unreadRefusal(t *testing.T, config *tls.Config, address, header string, goesOn bool) int {
	t.Helper()
	config = config.Clone()
	config.NextProtos = []string{"http/1.1"}
	raw, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	if err := raw.SetDeadline(time.Now().Add(unreadRefusedWithin)); err != nil {
		t.Fatal(err)
	}
	config.ServerName = "127.0.0.1"
	conn := tls.Client(raw, config)
	if _, err := fmt.Fprintf(conn,
		"POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: x\r\nContent-Type: %s\r\n%s\r\n",
		asYAML, header); err != nil {
		t.Fatal(err)
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		chunk := []byte("4000\r\n" + strings.Repeat("#", 0x4000) + "\r\n")
		for err := error(nil); goesOn && err == nil; {
			_, err = conn.Write(chunk)
		}
	}()
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("with %q: %v", header, err)
	}
	if strings.Contains(header, "Content-Length: 1000\r\n") && !strings.Contains(header, "Expect") {
		// The server does not wait for the rest of the body either: reading from the connection
		// ends after the response, not at the deadline.
		if _, err := io.Copy(io.Discard, conn); err != nil {
			t.Errorf("with %q: after the response: %v", header, err)
		}
	}
	response.Body.Close()
	raw.Close()
	<-sent
	return response.StatusCode
}
