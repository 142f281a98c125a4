package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest"
)

// operatorRun has the arguments of kinproc operator run.
type operatorRun struct {
	dir, kubeconfig string
	args            []string // of the operator
}

// run develops an operator, with a control plane of its own or with that of the kubeconfig.
func (o operatorRun) run(ctx context.Context, s streams) error {
	if err := requireModule(o.dir, "operator", "operator"); err != nil {
		return err
	}
	ctx, stop := untilInterrupted(ctx)
	defer stop()
	if o.kubeconfig == "" {
		return whileReady(ctx, s, "operator", func(srv *server.Server, kubeconfig string) error {
			o.kubeconfig = kubeconfig
			return o.develop(ctx, s, srv)
		})
	}
	kubeconfig, err := filepath.Abs(o.kubeconfig)
	if err != nil {
		return err
	}
	o.kubeconfig = kubeconfig
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("read the kubeconfig: %w", err)
	}
	return o.develop(ctx, s, servertest.ForConfig(config))
}

// develop builds and runs the operator until ctx ends, and again after each change of a file.
func (o operatorRun) develop(ctx context.Context, s streams, api servertest.API) (err error) {
	work, err := os.MkdirTemp("", "kinproc-operator-")
	if err != nil {
		return err
	}
	webhooks := &installation{ctx: context.WithoutCancel(ctx)}
	defer func() { err = errors.Join(err, webhooks.end(), os.RemoveAll(work)) }()
	r := reloader{
		streams: s, dir: o.dir, main: ".", also: []string{".yaml", ".yml", ".json"},
		program: programFile(work, "operator"),
	}
	if !isThere(filepath.Join(o.dir, "main.go")) && isThere(filepath.Join(o.dir, "cmd")) {
		r.main = "./cmd"
	}
	r.start = func(ctx context.Context) (*exec.Cmd, error) {
		if err := webhooks.end(); err != nil {
			return nil, err
		}
		cmd := exec.Command(r.program)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+o.kubeconfig)
		if definitions := o.first("config/crd.yaml", "config/crd/bases"); definitions != "" {
			lasting := &installation{ctx: ctx} // whose end nobody calls: the objects stay
			if err := lasting.do(func() {
				servertest.CRDs(lasting, api, servertest.Files(definitions))
			}); err != nil {
				return nil, err
			}
		}
		if hooks := o.first("config/webhook.yaml", "config/webhook"); hooks != "" {
			if err := webhooks.do(func() {
				e := servertest.Webhooks(webhooks, api, servertest.Files(hooks))
				cmd.Args = append(cmd.Args, "--webhook-host="+e.Host,
					"--webhook-port="+strconv.Itoa(e.Port), "--webhook-cert-dir="+e.CertDir)
			}); err != nil {
				return nil, err
			}
		}
		cmd.Args = append(cmd.Args, o.args...)
		return cmd, nil
	}
	r.run(ctx)
	return nil
}

// first returns the first of some files that the project has, or "".
func (o operatorRun) first(names ...string) string {
	for _, name := range names {
		if file := filepath.Join(o.dir, filepath.FromSlash(name)); isThere(file) {
			return file
		}
	}
	return ""
}

func isThere(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// installation is what the helpers for tests have installed in a control plane. It implements
// servertest.TB.
type installation struct {
	ctx      context.Context
	cleanups []func()
	errs     []error
}

// do calls f, which may end its goroutine by Fatalf, and returns what has failed.
func (i *installation) do(f func()) error {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f()
	}()
	<-ended
	err := errors.Join(i.errs...)
	i.errs = nil
	return err
}

// end removes what is installed.
func (i *installation) end() error {
	var errs []error
	for len(i.cleanups) > 0 {
		last := len(i.cleanups) - 1
		f := i.cleanups[last]
		i.cleanups = i.cleanups[:last]
		errs = append(errs, i.do(f))
	}
	return errors.Join(errs...)
}

// Context returns the context of the helpers' requests.
func (i *installation) Context() context.Context { return i.ctx }

// Helper implements servertest.TB.
func (i *installation) Helper() {}

// Cleanup implements servertest.TB.
func (i *installation) Cleanup(f func()) { i.cleanups = append(i.cleanups, f) }

// Errorf implements servertest.TB.
func (i *installation) Errorf(format string, args ...any) {
	text := strings.TrimPrefix(fmt.Sprintf(format, args...), "servertest: ")
	i.errs = append(i.errs, errors.New(text))
}

// Fatalf implements servertest.TB.
func (i *installation) Fatalf(format string, args ...any) {
	i.Errorf(format, args...)
	runtime.Goexit()
}
