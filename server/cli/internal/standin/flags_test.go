package standin_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"

	"github.com/kinproc/kinproc/server/cli/internal/standin"
)

// Each flag of kube-apiserver is accepted, or the error says why it is not.
func TestFlagsOfKubeAPIServer(t *testing.T) {
	t.Parallel()
	names, err := os.ReadFile("testdata/kube-apiserver-flags.txt")
	if err != nil {
		t.Fatal(err)
	}
	cmd := standin.NewAPIServerCommand("", "", func(int) logr.Logger { return logr.Discard() }, nil)
	for _, name := range append(strings.Fields(string(names)), "no-such-flag") {
		accepted := cmd.Flags().Lookup(name) != nil
		err := cmd.ParseFlags([]string{"--" + name + "=x"})
		unknown := errors.As(err, new(*pflag.NotExistError))
		if accepted == unknown {
			t.Errorf("--%s: accepted is %t, but the error is %v", name, accepted, err)
		}
		explanation := "--" + name + " is not supported: "
		explained := unknown && strings.HasPrefix(standin.ExplainFlag(err).Error(), explanation)
		if want := unknown && name != "no-such-flag"; explained != want {
			t.Errorf("--%s: explained is %t: %v", name, explained, standin.ExplainFlag(err))
		}
	}
}

func TestName(t *testing.T) {
	t.Parallel()
	for executable, want := range map[string]string{
		"/a/kube-apiserver": "kube-apiserver", "etcd": "etcd", "a/kubectl": "kubectl",
		"/usr/bin/kinproc": "", "etcd.old": "", "": "",
	} {
		if got := standin.Name(executable); got != want {
			t.Errorf("%s: %q", executable, got)
		}
	}
}
