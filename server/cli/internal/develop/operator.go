package develop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/server/internal/install"
	"github.com/kinproc/kinproc/server/internal/plainfile"
)

// installTimeout limits how long it may take to install CRDs, to install webhooks, or to remove
// webhooks.
const installTimeout = time.Minute

// Operator is an operator to develop.
type Operator struct {
	Project
	Args []string
}

// operator is one that is developed.
type operator struct {
	Operator
	client   *install.Client
	work     string // a temporary folder: the program, and the certificate of its webhooks
	webhooks []install.Object
}

// Run builds and runs the operator until ctx ends, and again after each change of a file.
func (o Operator) Run(ctx context.Context) (err error) {
	d := &operator{Operator: o}
	config := rest.CopyConfig(o.Config)
	config.WarningHandler = rest.NoWarnings{}
	if d.client, err = install.New(config, "kinproc"); err != nil {
		return err
	}
	if d.work, err = os.MkdirTemp("", "kinproc-operator-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.removeWebhooks(ctx), os.RemoveAll(d.work)) }()
	r := reloader{
		Project: o.Project, main: ".", also: []string{".yaml", ".yml", ".json"},
		program: programFile(d.work, "operator"), start: d.start,
	}
	if !isThere(filepath.Join(o.Dir, "main.go")) && isThere(filepath.Join(o.Dir, "cmd")) {
		r.main = "./cmd"
	}
	r.run(ctx)
	return nil
}

// start installs what the operator needs, and returns the command that runs it.
func (o *operator) start(ctx context.Context) (*exec.Cmd, error) {
	if err := o.removeWebhooks(ctx); err != nil {
		return nil, err
	}
	cmd := exec.Command(programFile(o.work, "operator"))
	cmd.Env = append(os.Environ(), "KUBECONFIG="+o.Kubeconfig)
	if err := o.installCRDs(ctx); err != nil {
		return nil, fmt.Errorf("install CRDs: %w", err)
	}
	e, err := o.installWebhooks(ctx)
	if err != nil {
		return nil, fmt.Errorf("install webhooks: %w", err)
	}
	if e != nil {
		cmd.Args = append(cmd.Args, "--webhook-host="+e.Host,
			"--webhook-port="+strconv.Itoa(e.Port), "--webhook-cert-dir="+o.work)
	}
	cmd.Args = append(cmd.Args, o.Args...)
	return cmd, nil
}

func (o *operator) installCRDs(ctx context.Context) error {
	definitions, err := o.first("config/crd.yaml", "config/crd/bases")
	if err != nil || definitions == nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, installTimeout)
	defer cancel()
	_, err = o.client.CRDs(ctx, definitions)
	return err
}

// installWebhooks returns where the operator must serve its webhooks, or nil if it has none.
func (o *operator) installWebhooks(ctx context.Context) (*install.Endpoint, error) {
	hooks, err := o.first("config/webhook.yaml", "config/webhook")
	if err != nil || hooks == nil {
		return nil, err
	}
	e, err := install.NewEndpoint(&install.Sockets{}, o.work)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, installTimeout)
	defer cancel()
	_, o.webhooks, err = o.client.Webhooks(ctx, e, hooks)
	return e, err
}

// removeWebhooks deletes the webhook configurations that were installed, also when ctx has ended.
func (o *operator) removeWebhooks(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), installTimeout)
	defer cancel()
	var errs []error
	for _, hook := range slices.Backward(o.webhooks) {
		if err := hook.Delete(ctx); err != nil {
			errs = append(errs, fmt.Errorf("delete %s: %w", hook, err))
		}
	}
	o.webhooks = nil
	return errors.Join(errs...)
}

// first returns the objects in the first of some files that the project has. Without one, they are
// nil.
func (o *operator) first(names ...string) ([]*unstructured.Unstructured, error) {
	for _, name := range names {
		file := filepath.Join(o.Dir, filepath.FromSlash(name))
		if !isThere(file) {
			continue
		}
		files, err := install.ReadPath(file, plainfile.Read)
		objects := []*unstructured.Unstructured{}
		for _, f := range files {
			objects = append(objects, f.Objects...)
		}
		return objects, err
	}
	return nil, nil
}

func isThere(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}
