package embed_test

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/kinproc/kinproc/embed"
)

// tempLock is the file that marks a temporary directory.
const tempLock = "kinproc-temporary.lock"

// ephemeral runs a process with an ephemeral member below parent and returns the member's
// directory.
func ephemeral(t *testing.T, parent string) (cmd *exec.Cmd, lines *bufio.Scanner, dir string) {
	t.Helper()
	cmd, lines = spawn(t, parent, ephemeralEnv+"=yes")
	if !lines.Scan() {
		t.Fatalf("the process printed nothing: %v", lines.Err())
	}
	return cmd, lines, lines.Text()
}

func exists(t *testing.T, path string) bool {
	t.Helper()
	_, err := os.Lstat(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return err == nil
}

func TestTempDirRemovesWhatAKilledProcessLeft(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	cmd, lines, left := ephemeral(t, parent)
	kill(t, cmd, lines)
	if !exists(t, database(left)) {
		t.Fatalf("%s has no database", left)
	}
	dir, remove, err := embed.TempDir(parent)
	must(t, err)
	patience := time.After(time.Minute)
	for exists(t, left) {
		select {
		case <-patience:
			t.Fatalf("%s still exists", left)
		case <-time.After(time.Millisecond):
		}
	}
	must(t, remove())
	must(t, remove()) // may be called more than once
	if exists(t, dir) {
		t.Errorf("%s still exists", dir)
	}
}

func TestSweepLeavesEverythingElse(t *testing.T) {
	t.Parallel()
	parent, elsewhere := t.TempDir(), t.TempDir()
	// marked creates a directory like one that a dead process leaves behind.
	marked := func(path string, mode os.FileMode) string {
		must(t, os.Mkdir(path, 0o700))
		must(t, os.WriteFile(filepath.Join(path, tempLock), []byte("\n1\n"), 0o600))
		must(t, os.Chmod(path, mode))
		return path
	}
	dead := marked(filepath.Join(parent, "kinproc-dead"), 0o700)
	killed, lines, left := ephemeral(t, parent)
	kill(t, killed, lines)
	running, runningLines, live := ephemeral(t, parent)

	data := filepath.Join(parent, "kinproc-data")
	writer, written := spawn(t, data)
	written.Scan()
	kill(t, writer, written)

	making := filepath.Join(parent, "kinproc-making")
	must(t, os.Mkdir(making, 0o700))
	must(t, os.WriteFile(filepath.Join(making, tempLock), nil, 0o600))
	unmarked := filepath.Join(parent, "kinproc-unmarked")
	must(t, os.Mkdir(unmarked, 0o700))
	link := filepath.Join(parent, "kinproc-link")
	must(t, os.Symlink(marked(filepath.Join(elsewhere, "target"), 0o700), link))
	stay := []string{
		live, data, making, unmarked, link, filepath.Join(elsewhere, "target", tempLock),
		marked(filepath.Join(parent, "other"), 0o700),
	}
	stay = append(stay, ofOthers(t, func(name string, mode os.FileMode) string {
		return marked(filepath.Join(parent, name), mode)
	})...)

	embed.SweepTempDirs(parent, nil)
	for _, path := range stay {
		if !exists(t, path) {
			t.Errorf("%s is gone", path)
		}
	}
	for _, path := range []string{dead, left} {
		if exists(t, path) {
			t.Errorf("%s still exists", path)
		}
	}
	kill(t, running, runningLines)
	embed.SweepTempDirs(parent, nil)
	if exists(t, live) {
		t.Errorf("%s still exists, although its process is dead", live)
	}
}

// Goroutines create directories while others sweep.
func TestTempDirsDoNotMeet(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range 25 {
				dir, remove, err := embed.TempDir(parent)
				if err != nil {
					t.Error(err)
					return
				}
				if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
					t.Error(err)
				}
				embed.SweepTempDirs(parent, nil)
				if _, err := os.Stat(filepath.Join(dir, "file")); err != nil {
					t.Error(err)
				}
				if err := remove(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	entries, err := os.ReadDir(parent)
	must(t, err)
	if len(entries) > 0 {
		t.Errorf("left behind: %v", entries)
	}
}
