// Package kubectl runs the real kubectl in the test process, so that the tests of the examples do
// not need other programs.
package kubectl

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"
	kubectl "k8s.io/kubectl/pkg/cmd"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"

	"github.com/kinproc/kinproc/server"
)

// Kubectl runs kubectl commands against one server.
type Kubectl struct {
	t testing.TB
	// Kubeconfig is the file that the commands use.
	Kubeconfig string
}

// New returns a Kubectl that acts as an administrator of s.
func New(t testing.TB, s *server.Server) *Kubectl {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*s.Kubeconfig(), path); err != nil {
		t.Fatal(err)
	}
	return &Kubectl{t: t, Kubeconfig: path}
}

// Run runs a command and returns its output. The test fails if the command fails.
func (k *Kubectl) Run(args ...string) string {
	k.t.Helper()
	out, err := k.Try(args...)
	if err != nil {
		k.t.Fatalf("kubectl %s: %v", strings.Join(args, " "), err)
	}
	return out
}

// Apply runs kubectl apply on YAML manifests and returns its output. The test fails if the command
// fails.
func (k *Kubectl) Apply(manifests string) string {
	k.t.Helper()
	file := filepath.Join(k.t.TempDir(), "manifests.yaml")
	if err := os.WriteFile(file, []byte(manifests), 0o600); err != nil {
		k.t.Fatal(err)
	}
	return k.Run("apply", "-f", file)
}

// WaitEstablished waits until a definition is established, and kubectl finds its resource: the
// discovery documents have it a moment later. The test fails if that takes about a minute. kubectl
// wait fails at once while a definition has no conditions, so WaitEstablished tries again.
func (k *Kubectl) WaitEstablished(definition string) {
	k.t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(k.t.Context(), 50*time.Millisecond, time.Minute, true,
		func(context.Context) (bool, error) {
			_, last = k.Try("wait", "--for=condition=Established", "crd/"+definition, "--timeout=1m")
			if last == nil {
				_, last = k.Try("get", definition, "--all-namespaces")
			}
			return last == nil, nil
		})
	if err != nil {
		k.t.Fatalf("%s is not established: %v", definition, errors.Join(err, last))
	}
}

// running guards kubectl's package-level variables: the values of its flags and its handler of
// fatal errors.
var running sync.Mutex

// exit is the panic value that replaces kubectl's os.Exit.
type exit struct{ message string }

// said is what a command has written to standard error. The command makes it the place for the
// warnings that clients of this process get, also those of other tests.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

// String returns what has been written.
func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// Try runs a command and returns its output, and its error message as an error.
func (k *Kubectl) Try(args ...string) (out string, err error) {
	running.Lock()
	defer running.Unlock()
	cmdutil.BehaviorOnFatal(func(message string, _ int) { panic(exit{message}) })
	var stdout bytes.Buffer
	var stderr said
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
	args = append([]string{
		"--kubeconfig", k.Kubeconfig, "--cache-dir", filepath.Join(filepath.Dir(k.Kubeconfig), "cache"),
		"--request-timeout=5m", // with the race detector, OpenAPI documents take long on a busy machine
	}, args...)
	cmd := kubectl.NewDefaultKubectlCommandWithArgs(kubectl.KubectlOptions{
		Arguments: append([]string{"kubectl"}, args...),
		ConfigFlags: genericclioptions.NewConfigFlags(true).WithDeprecatedPasswordFlag().
			WithWarningPrinter(streams),
		IOStreams: streams,
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
