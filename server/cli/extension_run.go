package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"
	apiregistration "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/extension"
)

// extensionRun has the arguments of kinproc extension run.
type extensionRun struct{ dir, kubeconfig, listen string }

// run develops an extension API server, with a control plane of its own or with that of the
// kubeconfig.
func (o extensionRun) run(ctx context.Context, s streams) error {
	if err := requireModule(o.dir, "extension API server", "extension"); err != nil {
		return err
	}
	ctx, stop := untilInterrupted(ctx)
	defer stop()
	if o.kubeconfig != "" {
		return o.develop(ctx, s, true)
	}
	return whileReady(ctx, s, "extension", func(_ *server.Server, kubeconfig string) error {
		o.kubeconfig = kubeconfig
		return o.develop(ctx, s, false)
	})
}

// development builds an extension API server and runs it.
type development struct {
	streams
	kubeconfig string
	work       string // a temporary folder: program, objects, certificates, registration
	address    string
	config     *rest.Config
	announced  sync.WaitGroup
}

// develop builds and runs the server until ctx ends, and again after each change of a file.
func (o extensionRun) develop(ctx context.Context, s streams, unregister bool) (err error) {
	d := &development{streams: s}
	if d.kubeconfig, err = filepath.Abs(o.kubeconfig); err != nil {
		return err
	}
	if d.config, err = clientcmd.BuildConfigFromFlags("", d.kubeconfig); err != nil {
		return fmt.Errorf("read the kubeconfig: %w", err)
	}
	if d.address, err = reachable(o.listen, d.config.Host); err != nil {
		return usageError{err}
	}
	if d.work, err = os.MkdirTemp("", "kinproc-extension-"); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		d.announced.Wait()
		if unregister {
			err = errors.Join(err, d.unregister())
		}
		err = errors.Join(err, os.RemoveAll(d.work))
	}()
	r := reloader{
		streams: s, dir: o.dir, main: ".", program: programFile(d.work, "server"),
	}
	r.start = func(ctx context.Context) (*exec.Cmd, error) {
		registration := filepath.Join(d.work, "registration.yaml")
		d.announced.Go(func() { d.announce(ctx, registration) })
		return exec.Command(r.program, "--kubeconfig="+d.kubeconfig, "--listen="+d.address,
			"--register", "--data-dir="+filepath.Join(d.work, "objects"),
			"--registration="+registration,
			"--cert-dir="+filepath.Join(d.work, "certificates")), nil
	}
	r.run(ctx)
	return nil
}

// announce prints the state of the server's APIServices as it changes, until one is available.
func (d *development) announce(ctx context.Context, registration string) {
	var r *extension.Registration
	if wait.PollUntilContextCancel(ctx, sourceInterval, true,
		func(context.Context) (_ bool, err error) {
			r, err = readRegistration(registration)
			return err == nil, nil
		}) != nil {
		return
	}
	client, err := apiregistration.NewForConfig(d.config)
	if err != nil {
		return
	}
	for _, a := range r.APIServices {
		if err := d.follow(ctx, client.APIServices(), a.Name); err != nil && ctx.Err() == nil {
			fmt.Fprintf(d.err, "kinproc: %v\n", err)
		}
	}
}

// follow prints the state of an APIService until it is available.
func (d *development) follow(
	ctx context.Context, client apiregistration.APIServiceInterface, name string,
) error {
	last := ""
	only := metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String(),
	}
	for ctx.Err() == nil {
		watch, err := client.Watch(ctx, only)
		if err != nil {
			return err
		}
		for e := range watch.ResultChan() {
			a, ok := e.Object.(*apiregistrationv1.APIService)
			if !ok {
				watch.Stop()
				return apierrors.FromObject(e.Object)
			}
			state, available := stateOf(a)
			if state != last {
				fmt.Fprintf(d.out, "%s: %s\n", name, state)
				last = state
			}
			if available {
				watch.Stop()
				return nil
			}
		}
	}
	return nil
}

// stateOf describes the condition Available of an APIService.
func stateOf(a *apiregistrationv1.APIService) (state string, available bool) {
	c := helper.GetAPIServiceConditionByType(a, apiregistrationv1.Available)
	switch {
	case c == nil:
		return "registered", false
	case c.Status == apiregistrationv1.ConditionTrue:
		return "available", true
	}
	return fmt.Sprintf("not available: %s: %s", c.Reason, c.Message), false
}

// unregister removes what the server has registered.
func (d *development) unregister() error {
	r, err := readRegistration(filepath.Join(d.work, "registration.yaml"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it was never ready
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), programStop)
	defer cancel()
	return extension.Unregister(ctx, d.config, r)
}

// reachable returns an address with a free port, which restarts keep: the given one, or one of
// those of this machine from which it reaches the control plane.
func reachable(listen, controlPlane string) (string, error) {
	if listen == "" {
		host, err := localHost(controlPlane)
		if err != nil {
			return "", fmt.Errorf("%w; name an address that the control plane reaches with --listen", err)
		}
		listen = net.JoinHostPort(host, "0")
	}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return "", fmt.Errorf("listen on %q: %w", listen, err)
	}
	defer l.Close()
	if tcp := l.Addr().(*net.TCPAddr); tcp.IP.IsUnspecified() {
		return "", fmt.Errorf("--listen=%s: name the one address at which the control plane reaches the "+
			"server", listen)
	}
	return l.Addr().String(), nil
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
