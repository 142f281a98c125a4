// Package program runs what an exploration needs: a controller that is a program, and the scripts
// of a user. They reach a control plane of this process by a kubeconfig, and can have a network of
// their own.
package program

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/httpstream/spdy"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kinproc/kinproc/server/internal/auth/pki"
	"github.com/kinproc/kinproc/server/internal/plainfile"
)

// Access is how programs reach a control plane.
type Access struct {
	// Config has the transport of their requests, and Upgrades that of those that upgrade their
	// connection, such as an exec.
	Config, Upgrades *rest.Config
	// Network is the one in which they run.
	Network *Network
}

// run runs a command in the network.
func (a Access) run(cmd *exec.Cmd) error {
	if err := a.Network.do(cmd.Start); err != nil {
		return err
	}
	return cmd.Wait()
}

// RunController runs a controller by its name and arguments, and kills it when ctx ends. What it
// prints goes to a new log too, unless newLog is nil.
func RunController(
	ctx context.Context, to Access, args []string, newLog func() (io.WriteCloser, error),
) error {
	return to.withProxy(func(kubeconfig string) (err error) {
		cmd := exec.CommandContext(ctx, args[0], args[1:]...) // ends it by SIGKILL
		out := &tail{}
		cmd.Stdout = out
		if newLog != nil {
			log, logErr := newLog()
			if logErr != nil {
				return logErr
			}
			defer func() { err = errors.Join(err, log.Close()) }()
			cmd.Stdout = io.MultiWriter(out, log)
		}
		cmd.Stderr = cmd.Stdout
		cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
		cmd.WaitDelay = time.Second
		err = to.run(cmd)
		if ctx.Err() != nil || err == nil {
			return nil
		}
		return fmt.Errorf("%w\n%s", err, out)
	})
}

// RunScripts runs the scripts of the user one after the other. Those without a name are left out.
func RunScripts(
	ctx context.Context, to Access, scripts []string, waitIdle func(),
) error {
	return to.withProxy(func(kubeconfig string) error {
		for i, script := range scripts {
			if i > 0 {
				if waitIdle(); ctx.Err() != nil {
					return fmt.Errorf("the system did not become idle between %s and %s; give it more time "+
						"with --patience", scripts[i-1], script)
				}
			}
			if script == "" {
				continue
			}
			cmd, err := scriptCommand(ctx, script)
			if err != nil {
				return err
			}
			cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
			cmd.WaitDelay = time.Second
			out := &bytes.Buffer{}
			cmd.Stdout, cmd.Stderr = out, out
			if err := to.run(cmd); err != nil {
				return fmt.Errorf("%s: %w\n%s", script, err, out)
			}
		}
		return nil
	})
}

// scriptCommand returns the command that runs a script: the script itself, if it is executable and
// names its interpreter, or else sh.
func scriptCommand(ctx context.Context, script string) (*exec.Cmd, error) {
	info, err := os.Stat(script)
	if err != nil {
		return nil, err
	}
	text, err := plainfile.Read(script)
	if err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(text, []byte("#!")) || info.Mode()&0o111 == 0 {
		return exec.CommandContext(ctx, "sh", script), nil
	}
	absolute, err := filepath.Abs(script)
	if err != nil {
		return nil, err
	}
	return exec.CommandContext(ctx, absolute), nil
}

// tail keeps the end of what is written.
type tail struct{ data []byte }

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	const limit = 4 << 10
	t.data = append(t.data, p...)
	t.data = t.data[max(0, len(t.data)-limit):]
	return len(p), nil
}

// String returns the end.
func (t *tail) String() string { return string(t.data) }

// withProxy calls f with a kubeconfig that leads to a server whose requests go through the
// configuration's transport. Whoever has the file has that access.
func (a Access) withProxy(f func(kubeconfig string) error) (err error) {
	proxy, err := proxyTo(a.Config)
	if err != nil {
		return err
	}
	upgrading := sync.OnceValues(func() (*httputil.ReverseProxy, error) {
		upgrades := rest.CopyConfig(a.Upgrades)
		upgrades.NextProtos = []string{"http/1.1"} // HTTP/2 has no upgrades
		return proxyTo(upgrades)
	})
	listener, err := a.Network.listen()
	if err != nil {
		return err
	}
	// Clients send no token without TLS, so the secret is in the path.
	secret := "/" + rand.Text()
	server := &http.Server{
		Handler: http.StripPrefix(secret, http.HandlerFunc(
			func(w http.ResponseWriter, r *http.Request) {
				upgrade := r.Header.Get("Upgrade")
				if !strings.EqualFold(upgrade, "websocket") &&
					!strings.EqualFold(upgrade, spdy.HeaderSpdy31) {
					r.Header.Del("Upgrade") // such as to HTTP/2, which a client may offer
					proxy.ServeHTTP(w, r)
					return
				}
				upgrading, err := upgrading()
				if err != nil {
					http.Error(w, err.Error(), http.StatusInternalServerError)
					return
				}
				upgrading.ServeHTTP(w, r)
			})),
		ReadHeaderTimeout: time.Minute,
		ErrorLog:          log.New(io.Discard, "", 0),
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer func() {
		err = errors.Join(err, server.Close())
		<-served // http.ErrServerClosed
	}()
	dir, err := os.MkdirTemp("", "kinproc-explore")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	address := "http://" + listener.Addr().String() + secret
	err = pki.WriteKubeconfig(kubeconfig,
		pki.Kubeconfig("explore", address, nil, "explore", &clientcmdapi.AuthInfo{}))
	if err != nil {
		return err
	}
	return f(kubeconfig)
}

// proxyTo returns a proxy whose requests go through the configuration's transport.
func proxyTo(config *rest.Config) (*httputil.ReverseProxy, error) {
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	target, _, err := rest.DefaultServerURL(config.Host, "", schema.GroupVersion{}, true)
	if err != nil {
		return nil, err
	}
	return &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1, // watches
		ErrorLog:      log.New(io.Discard, "", 0),
		// The client sees that the connection breaks.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}, nil
}
