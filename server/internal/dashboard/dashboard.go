// Package dashboard serves a web page of a running control plane: the chain with the requests that
// pass through it, what hangs on the chain, its objects, and a form to try requests.
//
// It gets everything through a client configuration, so it works in the process of a control plane
// and in another one. While no page is open, it sends no requests.
//
// # Safety
//
// The page shows what the user of the client configuration may see, so access to it is access as
// that user. It listens on loopback addresses only. A link with a token, which works once, begins a
// session. Requests from pages of other origins are refused. Unless [Options.Writes] is set,
// nothing can be changed. The data of Secrets and tokens never leave this package.
package dashboard

import (
	"context"
	"crypto/rand"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"log"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// shutdownTimeout bounds the wait for requests in progress. Streams have ended by then.
const shutdownTimeout = 5 * time.Second

//go:embed page
var files embed.FS

// Options are the options of a dashboard.
type Options struct {
	// Writes allows requests that change something.
	Writes bool
	// Renewed, if set, is called when a link has been used. There is another one then, which
	// [Server.Link] returns. Without it, there is only one link.
	Renewed func()
}

// Server is the dashboard of one control plane.
type Server struct {
	options   Options
	config    *rest.Config
	host      *url.URL // of the API server
	client    *http.Client
	discovery *discovery.DiscoveryClient
	dynamic   dynamic.Interface
	metadata  metadata.Interface

	page    *template.Template
	mux     *http.ServeMux
	live    *live
	session string // the value of the session's cookie

	mu    sync.Mutex
	token string // empty once it has been used

	decoding sync.Mutex // held while a body is decoded, which takes much more than the body
}

// New returns the dashboard of the control plane that a client configuration leads to. The
// configuration is not changed.
func New(config *rest.Config, options Options) (*Server, error) {
	config = rest.CopyConfig(config)
	config.UserAgent = "kinproc-dashboard"
	config.QPS = -1 // the pages bound what they ask for
	config.WarningHandler = rest.NoWarnings{}
	s := &Server{
		options: options, config: config, token: rand.Text(), session: rand.Text(),
		live: newLive(config),
	}
	var err error
	if s.host, _, err = rest.DefaultServerUrlFor(config); err != nil {
		return nil, fmt.Errorf("dashboard: %w", err)
	}
	if s.client, err = rest.HTTPClientFor(config); err != nil {
		return nil, fmt.Errorf("dashboard: %w", err)
	}
	s.discovery, err = discovery.NewDiscoveryClientForConfigAndClient(config, s.client)
	if err != nil {
		return nil, fmt.Errorf("dashboard: %w", err)
	}
	if s.dynamic, err = dynamic.NewForConfigAndClient(config, s.client); err != nil {
		return nil, fmt.Errorf("dashboard: %w", err)
	}
	if s.metadata, err = metadata.NewForConfigAndClient(config, s.client); err != nil {
		return nil, fmt.Errorf("dashboard: %w", err)
	}
	if s.page, err = template.ParseFS(files, "page/index.html"); err != nil {
		return nil, fmt.Errorf("dashboard: %w", err)
	}
	assets, err := fs.Sub(files, "page")
	if err != nil {
		return nil, fmt.Errorf("dashboard: %w", err)
	}
	s.mux = http.NewServeMux()
	s.mux.HandleFunc("GET /{$}", s.servePage)
	s.mux.Handle("GET /assets/", http.StripPrefix("/assets/", http.FileServerFS(assets)))
	s.mux.HandleFunc("GET /live", s.serveLive)
	s.mux.HandleFunc("GET /live/{id}", s.serveRequest)
	s.mux.HandleFunc("GET /live/{id}/related", s.serveRelated)
	s.mux.HandleFunc("GET /inventory", s.serveInventory)
	s.mux.HandleFunc("GET /counts", s.serveCounts)
	s.mux.HandleFunc("GET /kinds", s.serveKinds)
	s.mux.HandleFunc("GET /namespaces", s.serveNamespaces)
	s.mux.HandleFunc("GET /moments", s.serveMoments)
	s.mux.HandleFunc("GET /objects", s.serveObjects)
	s.mux.HandleFunc("GET /events", s.serveEvents)
	s.mux.HandleFunc("GET /history", s.serveHistory)
	s.mux.HandleFunc("GET /tree", s.serveTree)
	s.mux.HandleFunc("GET /logs", s.serveLogs)
	s.mux.HandleFunc("GET /usage", s.serveUsage)
	s.mux.HandleFunc("GET /search", s.serveSearch)
	s.mux.HandleFunc("GET /home", s.serveHome)
	s.mux.HandleFunc("POST /try", s.serveTry)
	s.mux.HandleFunc("POST /walk", s.serveWalk)
	return s, nil
}

// Listen listens on a loopback address, such as 127.0.0.1:0. It refuses other addresses.
func Listen(address string) (net.Listener, error) {
	if err := CheckAddress(address); err != nil {
		return nil, err
	}
	return net.Listen("tcp", address)
}

// CheckAddress returns an error if address is not a loopback address with a port.
func CheckAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	if _, wrong := strconv.ParseUint(port, 10, 16); err != nil || wrong != nil {
		return fmt.Errorf("%q is not an address with a port, such as 127.0.0.1:8080", address)
	}
	if !isLoopback(host) {
		return fmt.Errorf("%s is not a loopback address: the dashboard is for this machine only, "+
			"use 127.0.0.1 or [::1]", host)
	}
	return nil
}

// Link returns the address of the page for a browser, with the token. It works once.
func (s *Server) Link(l net.Listener) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return "http://" + l.Addr().String() + "/?token=" + s.token
}

// Serve serves the page until ctx ends, and closes the listener. It returns when all streams have
// ended.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	server := &http.Server{
		Handler:           s,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    1 << 16,
		// A browser that goes away is none of the host's concern.
		ErrorLog: log.New(nowhere{}, "", 0),
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		if err = server.Shutdown(bounded); err != nil {
			err = errors.Join(err, server.Close())
		}
		<-ended
	}
	s.live.wait()
	if err != nil {
		return fmt.Errorf("serve the dashboard: %w", err)
	}
	return nil
}

type nowhere struct{}

func (nowhere) Write(p []byte) (int, error) { return len(p), nil }

func (s *Server) servePage(w http.ResponseWriter, r *http.Request) {
	version, err := s.discovery.WithLegacy().ServerVersion()
	what := struct {
		Writes  bool
		Server  string
		Version string
	}{Writes: s.options.Writes, Server: s.host.Host}
	if err == nil {
		what.Version = version.GitVersion
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_ = s.page.Execute(w, what) // the browser has gone away
}
