package standin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/api/v3/version"
)

// The paths of the stand-in for etcd. Those of kinproc's own do not exist in a real etcd.
const (
	versionPath = "/version"
	claimPath   = "/kinproc/v1/claim"
)

// etcdVersion is what /version returns.
type etcdVersion struct {
	Server  string `json:"etcdserver"`
	Cluster string `json:"etcdcluster"`
	// StandIn distinguishes the stand-in from an etcd.
	StandIn bool `json:"kinprocStandIn,omitempty"`
}

// NewEtcdCommand returns the command of the stand-in for etcd. It runs until its context ends.
func NewEtcdCommand() *cobra.Command {
	var urls []string
	cmd := &cobra.Command{
		Use:   Etcd,
		Short: "Stand in for etcd in tests with envtest",
		Long: `This is kinproc under the name of etcd. It tells kube-apiserver, another name of kinproc,
to use the etcd inside of kube-apiserver, and answers health checks. It holds no data, so no flag
matters but --listen-client-urls.`,
		Version:       version.Version,
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return serveEtcd(cmd.Context(), urls)
		},
	}
	cmd.Flags().StringSliceVar(&urls, "listen-client-urls", []string{"http://localhost:2379"},
		"URLs to listen on")
	for _, name := range []string{
		"advertise-client-urls", "auto-compaction-mode", "auto-compaction-retention", "data-dir",
		"initial-advertise-peer-urls", "initial-cluster", "initial-cluster-state",
		"initial-cluster-token", "listen-metrics-urls", "listen-peer-urls", "log-level",
		"log-outputs", "logger", "max-request-bytes", "name", "quota-backend-bytes",
		"snapshot-count", "wal-dir",
	} {
		cmd.Flags().String(name, "", "has no effect")
	}
	cmd.Flags().Bool("unsafe-no-fsync", false, "has no effect")
	return cmd
}

// serveEtcd serves the health check and the claim at the URLs.
func serveEtcd(ctx context.Context, urls []string) error {
	server := &http.Server{Handler: newEtcdHandler(), ReadHeaderTimeout: time.Minute}
	var listeners []net.Listener
	defer func() {
		for _, l := range listeners {
			l.Close()
		}
	}()
	for _, text := range urls {
		u, err := url.Parse(text)
		if err != nil {
			return fmt.Errorf("--listen-client-urls: %w", err)
		}
		if u.Scheme != "http" {
			return fmt.Errorf(
				"--listen-client-urls: %s is not of the form http://address:port, which is all "+
					"that this stand-in for etcd serves",
				text)
		}
		l, err := net.Listen("tcp", u.Host)
		if err != nil {
			return fmt.Errorf("--listen-client-urls: %w", err)
		}
		listeners = append(listeners, l)
	}
	ended := make(chan error, len(listeners))
	for _, l := range listeners {
		go func() { ended <- server.Serve(l) }()
	}
	var err error
	select {
	case <-ctx.Done():
		err = server.Close()
	case err = <-ended:
		return errors.Join(err, server.Close())
	}
	for range listeners {
		<-ended // http.ErrServerClosed
	}
	return err
}

func newEtcdHandler() http.Handler {
	mux := http.NewServeMux()
	healthy := func(body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, body) }
	}
	mux.HandleFunc("GET /health", healthy(`{"health":"true","reason":""}`))
	mux.HandleFunc("GET /livez", healthy("ok"))
	mux.HandleFunc("GET /readyz", healthy("ok"))
	mux.HandleFunc("GET "+versionPath, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		found := etcdVersion{version.Version, version.Cluster(version.Version), true}
		_ = json.NewEncoder(w).Encode(found)
	})
	var claimed atomic.Bool
	mux.HandleFunc("POST "+claimPath, func(w http.ResponseWriter, _ *http.Request) {
		if !claimed.CompareAndSwap(false, true) {
			w.WriteHeader(http.StatusConflict)
		}
	})
	mux.HandleFunc("DELETE "+claimPath,
		func(http.ResponseWriter, *http.Request) { claimed.Store(false) })
	return mux
}
