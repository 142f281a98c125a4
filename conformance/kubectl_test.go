package conformance_test

import (
	"bytes"
	"fmt"
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

// failure is the panic value that replaces kubectl's os.Exit; it holds the error message.
type failure struct{ message string }

func TestMain(m *testing.M) {
	cmdutil.BehaviorOnFatal(func(message string, _ int) { panic(failure{message}) })
	os.Exit(m.Run())
}

// turn serializes kubectl commands: kubectl keeps state in package variables.
var turn sync.Mutex

// kubectlFor returns a function that runs the real kubectl as the administrator of s. The function
// returns what kubectl printed and the error with which it failed, if any.
func kubectlFor(t *testing.T, s *server.Server) func(args ...string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	kubeconfig, cache := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "cache")
	if err := clientcmd.WriteToFile(*s.Kubeconfig(), kubeconfig); err != nil {
		t.Fatal(err)
	}
	return func(args ...string) (printed string, err error) {
		turn.Lock()
		defer turn.Unlock()
		var out, errOut bytes.Buffer
		flags := genericclioptions.NewConfigFlags(true).WithDiscoveryBurst(1000).WithDiscoveryQPS(1000)
		*flags.KubeConfig, *flags.CacheDir = kubeconfig, cache
		*flags.Timeout = "5m" // with the race detector, OpenAPI documents take long on a busy machine
		cmd := kubectl.NewKubectlCommand(kubectl.KubectlOptions{
			IOStreams:   genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut},
			ConfigFlags: flags,
		})
		cmd.SetArgs(args)
		cmd.SetOut(&out)
		cmd.SetErr(&errOut)
		cmd.SilenceUsage, cmd.SilenceErrors = true, true
		defer func() {
			if r := recover(); r != nil {
				f, ok := r.(failure)
				if !ok {
					panic(r)
				}
				err = fmt.Errorf("kubectl %s: %s%s", strings.Join(args, " "), errOut.String(), f.message)
			}
			printed = out.String()
		}()
		if err := cmd.ExecuteContext(t.Context()); err != nil {
			return "", fmt.Errorf("kubectl %s: %w", strings.Join(args, " "), err)
		}
		return "", nil
	}
}
