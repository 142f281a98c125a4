package standin_test

import (
	"os"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/cli/internal/standin"
	"github.com/kinproc/kinproc/server/serverflags"
)

// TestFlagGroups holds the flags of kinproc against those that a kube-apiserver 1.37 lists in its
// help, and six that it takes but leaves out. Each of them is honoured, and then it is in the help;
// or it is accepted, with a warning or with one value only; or it is refused with a reason.
func TestFlagGroups(t *testing.T) {
	t.Parallel()
	list, err := os.ReadFile("testdata/kube-apiserver-flags.txt")
	if err != nil {
		t.Fatal(err)
	}
	names := strings.Fields(string(list))
	if len(names) < 174 { // 168 of the help, and 6 that it leaves out
		t.Errorf("%d flags are too few", len(names))
	}
	groups := map[string]int{}
	for _, name := range names {
		var o server.Options
		var sections cliflag.NamedFlagSets
		serverflags.Add(&o, &sections)
		all := pflag.NewFlagSet("", pflag.ContinueOnError)
		all.IntP("v", "v", 0, "") // of the command
		for _, set := range sections.FlagSets {
			all.AddFlagSet(set)
		}
		switch flag := all.Lookup(name); {
		case flag == nil:
			groups["refused"]++
			unknown := all.Parse([]string{"--" + name + "=x"})
			if explained := standin.ExplainFlag(unknown); explained == unknown {
				t.Errorf("--%s is unknown", name)
			}
		case !flag.Hidden:
			groups["honoured"]++
			if name != "v" && flag.Usage == "" {
				t.Errorf("--%s is not in the help", name)
			}
		case flag.Value.Set("no such value") != nil:
			groups["fixed"]++
		default:
			groups["without effect"]++
			want := "--" + name + " has no effect: "
			if w := o.Warnings(); len(w) != 1 || !strings.HasPrefix(w[0], want) {
				t.Errorf("--%s: the warnings are %q", name, w)
			}
		}
	}
	t.Log(groups)
}
