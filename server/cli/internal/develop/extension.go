package develop

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/kinproc/kinproc/server/extension"
	"github.com/kinproc/kinproc/server/internal/install"
)

// Extension is an extension API server to develop.
type Extension struct {
	Project
	Address    *net.TCPAddr // where it listens
	Unregister bool         // whether to take back its registration at the end
}

// extensionServer is one that is developed.
type extensionServer struct {
	Extension
	work      string // a temporary folder: program, objects, certificates, registration
	announced sync.WaitGroup
}

// Run builds and runs the server until ctx ends, and again after each change of a file.
func (e Extension) Run(ctx context.Context) (err error) {
	d := &extensionServer{Extension: e}
	if d.work, err = os.MkdirTemp("", "kinproc-extension-"); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel() // of all announcements too
		d.announced.Wait()
		if e.Unregister {
			err = errors.Join(err, d.unregister())
		}
		err = errors.Join(err, os.RemoveAll(d.work))
	}()
	r := reloader{Project: e.Project, main: ".", program: programFile(d.work, "server")}
	endAnnounce := context.CancelFunc(func() {})
	r.start = func(ctx context.Context) (*exec.Cmd, error) {
		endAnnounce() // of the program before
		ctx, endAnnounce = context.WithCancel(ctx)
		d.announced.Go(func() { d.announce(ctx) })
		return exec.Command(r.program, "--kubeconfig="+e.Kubeconfig,
			"--bind-address="+e.Address.IP.String(), "--secure-port="+strconv.Itoa(e.Address.Port),
			"--register", "--data-dir="+filepath.Join(d.work, "objects"),
			"--registration="+d.registration(),
			"--cert-dir="+filepath.Join(d.work, "certificates")), nil
	}
	r.run(ctx)
	return nil
}

func (e *extensionServer) registration() string {
	return filepath.Join(e.work, "registration.yaml")
}

// announce prints the state of the server's APIServices as it changes, until each is available.
func (e *extensionServer) announce(ctx context.Context) {
	var r *extension.Registration
	if wait.PollUntilContextCancel(ctx, sourceInterval, true,
		func(context.Context) (_ bool, err error) {
			r, err = ReadRegistration(e.registration())
			return err == nil, nil
		}) != nil {
		return
	}
	client, err := dynamic.NewForConfig(e.Config)
	if err != nil {
		return
	}
	services := client.Resource(apiregistrationv1.SchemeGroupVersion.WithResource("apiservices"))
	for _, a := range r.APIServices {
		last := ""
		err := install.Await(ctx, services, a.Name, func(u *unstructured.Unstructured) error {
			missing, state := install.Availability(u), "available"
			if missing != nil {
				state = missing.Error()
			}
			if state != last {
				fmt.Fprintf(e.Out, "%s: %s\n", a.Name, state)
				last = state
			}
			return missing
		})
		if err != nil && ctx.Err() == nil {
			fmt.Fprintf(e.Err, "kinproc: %v\n", err)
		}
	}
}

// unregister removes what the server has registered.
func (e *extensionServer) unregister() error {
	r, err := ReadRegistration(e.registration())
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it was never ready
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), programStop)
	defer cancel()
	return extension.Unregister(ctx, e.Config, r)
}

// Reachable returns an address with a port, which restarts keep. If bindAddress is empty, it is one
// of those of this machine from which it reaches the control plane. If port is 0, it is a free one.
func Reachable(bindAddress string, port int, controlPlane string) (*net.TCPAddr, error) {
	if bindAddress == "" {
		var err error
		if bindAddress, err = localHost(controlPlane); err != nil {
			return nil, fmt.Errorf(
				"%w; name an address that the control plane reaches with --bind-address", err)
		}
	}
	ip := net.ParseIP(bindAddress)
	if ip == nil || ip.IsUnspecified() {
		return nil, fmt.Errorf("--bind-address=%s: name the one IP address at which the control "+
			"plane reaches the server", bindAddress)
	}
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: ip, Port: port})
	if err != nil {
		return nil, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr), nil
}

// localHost returns the address from which this machine connects to a server.
func localHost(server string) (string, error) {
	u, _, err := rest.DefaultServerURL(server, "", schema.GroupVersion{}, true)
	if err != nil {
		return "", err
	}
	port := u.Port()
	if port == "" {
		port = "443"
	}
	// UDP finds the way without sending anything.
	conn, err := net.Dial("udp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return "", err
	}
	defer conn.Close()
	return conn.LocalAddr().(*net.UDPAddr).IP.String(), nil
}
