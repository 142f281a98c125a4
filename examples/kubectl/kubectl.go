// Package kubectl runs the real kubectl in the test process, so that the tests of the examples need no other program.
package kubectl

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"
	kubectl "k8s.io/kubectl/pkg/cmd"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"

	"github.com/kinproc/kinproc/server"
)

// Kubectl runs commands against one server.
type Kubectl struct {
	t testing.TB
	// Kubeconfig is the file that the commands use.
	Kubeconfig string
}

// New makes a kubectl for an administrator of s.
func New(t testing.TB, s *server.Server) *Kubectl {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*s.Kubeconfig(), path); err != nil {
		t.Fatal(err)
	}
	return &Kubectl{t: t, Kubeconfig: path}
}

// Run runs a command, which has to succeed, and returns what it prints.
func (k *Kubectl) Run(args ...string) string {
	k.t.Helper()
	out, err := k.Try(args...)
	if err != nil {
		k.t.Fatalf("kubectl %s: %v", strings.Join(args, " "), err)
	}
	return out
}

// Apply runs kubectl apply with manifests in YAML, which has to succeed.
func (k *Kubectl) Apply(manifests string) string {
	k.t.Helper()
	file := filepath.Join(k.t.TempDir(), "manifests.yaml")
	if err := os.WriteFile(file, []byte(manifests), 0o600); err != nil {
		k.t.Fatal(err)
	}
	return k.Run("apply", "-f", file)
}

// running guards what kubectl keeps in package-level variables: the values of its flags, and what to do when a command fails.
var running sync.Mutex

// exit is what kubectl panics with where it would end the process.
type exit struct{ message string }

// Try runs a command and returns what it prints, and its complaint as an error.
func (k *Kubectl) Try(args ...string) (out string, err error) {
	running.Lock()
	defer running.Unlock()
	cmdutil.BehaviorOnFatal(func(message string, _ int) { panic(exit{message}) })
	var stdout, stderr bytes.Buffer
	streams := genericiooptions.IOStreams{In: strings.NewReader(""), Out: &stdout, ErrOut: &stderr}
	defer func() {
		if r := recover(); r != nil {
			e, ok := r.(exit)
			if !ok {
				panic(r)
			}
			out, err = stdout.String(), errors.New(strings.TrimSpace(e.message+"\n"+stderr.String()))
		}
	}()
	args = append([]string{"--kubeconfig", k.Kubeconfig, "--cache-dir", filepath.Join(filepath.Dir(k.Kubeconfig), "cache")}, args...)
	cmd := kubectl.NewDefaultKubectlCommandWithArgs(kubectl.KubectlOptions{
		Arguments:   append([]string{"kubectl"}, args...),
		ConfigFlags: genericclioptions.NewConfigFlags(true).WithDeprecatedPasswordFlag().WithWarningPrinter(streams),
		IOStreams:   streams,
	})
	cmd.SetArgs(args)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
	if err := cmd.Execute(); err != nil {
		return stdout.String(), err
	}
	return stdout.String(), nil
}
