package extension_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/kubectl/pkg/cmd"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"

	"github.com/kinproc/kinproc/server"
)

// kubectl runs kubectl commands.
type kubectl struct {
	t          *testing.T
	kubeconfig string
}

func newKubectl(t *testing.T, s *server.Server) *kubectl {
	t.Helper()
	k := &kubectl{t, filepath.Join(t.TempDir(), "kubeconfig")}
	if err := clientcmd.WriteToFile(*s.Kubeconfig(), k.kubeconfig); err != nil {
		t.Fatal(err)
	}
	return k
}

// inKubectl guards kubectl's package-level variables.
var inKubectl sync.Mutex

type exit struct{ message string }

// run runs a command. In is the content of the file that the argument FILE stands for.
func (k *kubectl) run(in string, args ...string) (out string, err error) {
	if i := slices.Index(args, "FILE"); i >= 0 {
		args = slices.Clone(args)
		args[i] = filepath.Join(k.t.TempDir(), "object.yaml")
		if err := os.WriteFile(args[i], []byte(in), 0o600); err != nil {
			k.t.Fatal(err)
		}
	}
	inKubectl.Lock()
	defer inKubectl.Unlock()
	cmdutil.BehaviorOnFatal(func(message string, _ int) { panic(exit{message}) })
	var stdout, stderr bytes.Buffer
	defer func() {
		switch r := recover().(type) {
		case nil:
		case exit:
			out, err = stdout.String(), errors.New(r.message+stderr.String())
		default:
			panic(r)
		}
	}()
	args = append([]string{
		"--kubeconfig", k.kubeconfig, "--cache-dir", filepath.Join(filepath.Dir(k.kubeconfig), "cache"),
		"--request-timeout=5m", // with the race detector, OpenAPI documents take long on a busy machine
	}, args...)
	streams := genericiooptions.IOStreams{In: strings.NewReader(""), Out: &stdout, ErrOut: &stderr}
	c := cmd.NewDefaultKubectlCommandWithArgs(cmd.KubectlOptions{
		Arguments: append([]string{"kubectl"}, args...),
		ConfigFlags: genericclioptions.NewConfigFlags(true).WithDeprecatedPasswordFlag().
			WithWarningPrinter(streams),
		IOStreams: streams,
	})
	c.SetArgs(args)
	c.SilenceUsage, c.SilenceErrors = true, true
	c.SetOut(&stdout)
	c.SetErr(&stderr)
	err = c.Execute()
	return stdout.String(), err
}

// must runs a command that must succeed and print want.
func (k *kubectl) must(want, in string, args ...string) {
	k.t.Helper()
	out, err := k.run(in, args...)
	if err != nil {
		k.t.Fatalf("kubectl %s: %v", strings.Join(args, " "), err)
	}
	if !strings.Contains(out, want) {
		k.t.Errorf("kubectl %s prints %q, want %q", strings.Join(args, " "), out, want)
	}
}
