package cli_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// resetKill is the maximum time from the beginning of a reset to the kill. Most resets here take
// less.
const resetKill = 20 * time.Millisecond

// TestKilledDuringAReset kills the program with SIGKILL while it is reset to one of two states, and
// checks that it has one of them when it runs again, and not something in between.
func TestKilledDuringAReset(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	p := startProgram(t, dir)
	client := p.client()
	maps := client.CoreV1().ConfigMaps(metav1.NamespaceDefault)
	states := []string{"red", "green"}
	const objects = 100
	var snapshots [][]byte
	for _, state := range states {
		for i := range objects {
			m := &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", state, i),
					Labels: map[string]string{"state": state}},
			}
			if _, err := maps.Create(t.Context(), m, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		data, err := client.CoreV1().RESTClient().Get().AbsPath("/kinproc/v1/snapshot").DoRaw(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		snapshots = append(snapshots, data)
		if err := maps.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{
			LabelSelector: "state=" + state,
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := resetProgram(t, client, snapshots[0]); err != nil {
		t.Fatal(err)
	}
	reached := map[string]int{}
	for round := range *killRounds {
		resets := make(chan error, 1)
		running := client
		go func() { resets <- resetProgram(t, running, snapshots[(round+1)%2]) }()
		p.killAfter(rand.N(resetKill))
		acknowledged := <-resets == nil
		if err := os.Remove(p.kubeconfig); err != nil {
			t.Fatal(err)
		}
		p = startProgram(t, dir)
		client = p.client()
		state := stateOf(t, client, objects)
		reached[state]++
		if acknowledged && state != states[(round+1)%2] {
			t.Errorf("round %d: the reset was acknowledged, but the state is %s", round, state)
		}
	}
	p.kill()
	t.Logf("%d rounds, which ended in %v", *killRounds, reached)
}

func resetProgram(t *testing.T, client kubernetes.Interface, snapshot []byte) error {
	t.Helper()
	return client.CoreV1().RESTClient().Post().AbsPath("/kinproc/v1/reset").Body(snapshot).
		SetHeader("Content-Type", "application/octet-stream").Do(t.Context()).Error()
}

// stateOf returns the state that all config maps have.
func stateOf(t *testing.T, client kubernetes.Interface, objects int) string {
	t.Helper()
	list, err := client.CoreV1().ConfigMaps(metav1.NamespaceDefault).List(t.Context(),
		metav1.ListOptions{LabelSelector: "state"})
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, m := range list.Items {
		count[m.Labels["state"]]++
	}
	for state, n := range count {
		if len(count) == 1 && n == objects {
			return state
		}
	}
	t.Fatalf("after the kill there are %v", count)
	return ""
}
