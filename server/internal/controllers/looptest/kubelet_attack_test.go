package looptest

import (
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
)

// TestAttackTablesOfCommands has tables that an ordinary user writes, and many commands at once.
// They take gigabytes if each command decodes them.
func TestAttackTablesOfCommands(t *testing.T) {
	t.Parallel()
	k := startKubelet(t)
	const many = 24
	for name, test := range map[string]struct{ table, want string }{
		"aliases": {
			"- command: x\n  stdout: &a \"" + strings.Repeat("A", 300_000) + "\"\n" +
				strings.Repeat("- {command: again, stdout: *a}\n", 900),
			"bytes expand to more than 3145728 bytes",
		},
		"items":    {strings.Repeat("- {}\n", 200_000), "has more than 1000 commands"},
		"brackets": {"[" + strings.Repeat("{a},", 50_000) + "]", "no list with command"},
		"right":    {"- command: x\n  stdout: &a \"A\"\n- {command: again, stdout: *a}\n", ""},
	} {
		workloadtest.Must(k.client.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"a": test.table},
		}, metav1.CreateOptions{}))(t)
		k.create(name, nodesAnnotated("commands", name))
		var wg sync.WaitGroup
		for range many {
			wg.Go(func() {
				out, _, err := k.exec(remotecommand.NewSPDYExecutor, "exec", name, "", false, "again")
				if test.want == "" && (err != nil || out != "A") ||
					test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
					t.Errorf("%s: %q, %.1000v, want %q", name, out, err, test.want)
				}
			})
		}
		wg.Wait()
	}
}
