//go:build unix

package cli_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// Whatever fails because too few files may be open, a start leaves nothing behind. With the highest
// of these limits, it succeeds. It takes some seconds, since it starts two dozen control planes.
func TestAttackFewFiles(t *testing.T) {
	t.Parallel()
	const lowest, highest = 8, 52
	var failed, succeeded int
	var mu sync.Mutex
	slots, running := make(chan struct{}, 4), sync.WaitGroup{}
	for _, way := range []string{"--ephemeral", "--data-dir=data"} {
		for limit := lowest; limit <= highest; limit += 4 {
			slots <- struct{}{}
			running.Go(func() {
				defer func() { <-slots }()
				ready, left, said := startWithFewFiles(t, limit, way)
				mu.Lock()
				defer mu.Unlock()
				if ready {
					succeeded++
					return
				}
				failed++
				if len(left) > 0 || !strings.HasPrefix(said, "kinproc: ") {
					t.Errorf("%s with %d files has left %q, and said %s", way, limit, left, said)
				}
			})
		}
	}
	running.Wait()
	if failed == 0 || succeeded == 0 {
		t.Errorf("%d starts have failed, and %d have succeeded", failed, succeeded)
	}
}

// startWithFewFiles starts a control plane that may open few files, and stops it when it is ready.
// It returns the files that are there when it has ended, and what it has said.
func startWithFewFiles(t *testing.T, limit int, way string) (ready bool, left []string, said string) {
	t.Helper()
	base := t.TempDir()
	for _, name := range []string{"tmp", "work", "home"} {
		if err := os.Mkdir(filepath.Join(base, name), 0o700); err != nil {
			t.Error(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	script := fmt.Sprintf("ulimit -n %d && exec kinproc start %s --secure-port=0", limit, way)
	cmd := exec.CommandContext(ctx, "sh", "-c", script)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Dir = filepath.Join(base, "work")
	cmd.Env = append(os.Environ(), "TMPDIR="+filepath.Join(base, "tmp"),
		"HOME="+filepath.Join(base, "home"), "XDG_STATE_HOME=")
	var complaints strings.Builder
	cmd.Stdout, cmd.Stderr = writer(func(string) { ready = true; cancel() }), &complaints
	_ = cmd.Run() // it has failed, or it was interrupted
	for _, name := range []string{"tmp", "work"} {
		entries, err := os.ReadDir(filepath.Join(base, name))
		if err != nil {
			t.Error(err)
		}
		for _, e := range entries {
			left = append(left, name+"/"+e.Name())
		}
	}
	return ready, left, complaints.String()
}

// writer calls a function for what is written.
type writer func(string)

func (w writer) Write(p []byte) (int, error) {
	w(string(p))
	return len(p), nil
}
