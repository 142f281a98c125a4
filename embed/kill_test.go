package embed_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kinproc/kinproc/embed"
)

// writers is how many clients of the killed process write at the same time.
const writers = 4

func numberedKey(n int) string { return fmt.Sprintf("/n/%08d", n) }

func countKeys(ctx context.Context, e *embed.Etcd) int {
	r, err := e.Client().Get(ctx, "/n/", clientv3.WithPrefix(), clientv3.WithLimit(1),
		clientv3.WithSort(clientv3.SortByKey, clientv3.SortDescend), clientv3.WithKeysOnly())
	if err != nil || len(r.Kvs) == 0 {
		return 0
	}
	last, err := strconv.Atoi(strings.TrimLeft(strings.TrimPrefix(string(r.Kvs[0].Key), "/n/"), "0"))
	if err != nil {
		return 0
	}
	return last + 1
}

// spawn runs child on dir in another process and returns the lines that it prints.
func spawn(t *testing.T, dir string, env ...string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = slices.Concat(os.Environ(), []string{childEnv + "=" + dir}, env)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, bufio.NewScanner(out)
}

// kill kills the process with SIGKILL and returns the remaining lines of its output.
func kill(t *testing.T, cmd *exec.Cmd, lines *bufio.Scanner) (rest []string) {
	t.Helper()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
		rest = append(rest, lines.Text())
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) {
		t.Fatalf("the killed process exited with %v", err)
	}
	return rest
}

// Each round kills the process at a different time, first during its start, and checks that no
// acknowledged write was lost.
func TestAcknowledgedWritesSurviveKill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	acknowledged := map[int]bool{}
	for round, after := range []int{0, 1, 10, 150, 700, 2500} {
		cmd, lines := spawn(t, dir)
		var printed []string
		for len(printed) < after && lines.Scan() {
			printed = append(printed, lines.Text())
		}
		printed = append(printed, kill(t, cmd, lines)...)
		for _, line := range printed {
			n, err := strconv.Atoi(line)
			if err != nil {
				t.Fatalf("round %d: the process printed %q", round, line)
			}
			acknowledged[n] = true
		}
		e := start(t, embed.Options{Dir: dir})
		r, err := e.Client().Get(t.Context(), "/n/", clientv3.WithPrefix())
		if err != nil {
			t.Fatal(err)
		}
		have := map[string]string{}
		for _, kv := range r.Kvs {
			have[string(kv.Key)] = string(kv.Value)
		}
		for n := range acknowledged {
			if have[numberedKey(n)] != strconv.Itoa(n) {
				t.Errorf("round %d: write %d was acknowledged, but its value is %q",
					round, n, have[numberedKey(n)])
			}
		}
		stop(t, e)
	}
	if len(acknowledged) < 3000 {
		t.Errorf("only %d writes were acknowledged", len(acknowledged))
	}
}

func TestLockNamesTheOtherProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd, lines := spawn(t, dir)
	if !lines.Scan() {
		t.Fatal("the process did not start")
	}
	_, err := embed.Start(t.Context(), embed.Options{Dir: dir})
	want := fmt.Sprintf("in use by process %d ", cmd.Process.Pid)
	if !errors.Is(err, embed.ErrLocked) || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want it to say %q", err, want)
	}
	kill(t, cmd, lines)
	start(t, embed.Options{Dir: dir})
}
