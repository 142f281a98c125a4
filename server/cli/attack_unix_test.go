//go:build unix

package cli_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// bystander is a process that has nothing to do with kinproc, in a process group of its own.
type bystander struct {
	*exec.Cmd
	ended chan error
}

func startBystander(t *testing.T) *bystander {
	t.Helper()
	b := &bystander{exec.Command("sleep", "600"), make(chan error, 1)}
	b.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := b.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { b.ended <- b.Wait() }()
	t.Cleanup(func() {
		_ = b.Process.Kill()
		<-b.ended
	})
	return b
}

// mustLive fails if the process has ended.
func (b *bystander) mustLive(t *testing.T, after string) {
	t.Helper()
	select {
	case err := <-b.ended:
		b.ended <- err
		t.Fatalf("%s has ended a process that is not its own: %v", after, err)
	default:
	}
	if err := b.Process.Signal(syscall.Signal(0)); err != nil {
		t.Fatalf("after %s, the process has ended: %v", after, err)
	}
}

// kinproc runs the program in the environment of another one.
func (p *program) kinproc(args ...string) (output string, exit int) {
	p.t.Helper()
	cmd := exec.Command("kinproc", args...)
	cmd.Env = p.cmd.Env
	out, err := cmd.CombinedOutput()
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		p.t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// read returns the content of a file of the test.
func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func move(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

// announced waits until a control plane has a record in a directory, and returns the record.
func announced(t *testing.T, p *program, dir string) string {
	t.Helper()
	p.client()
	var record map[string]any
	eventuallyRead(t, filepath.Join(dir, "running.json"), &record)
	return read(t, filepath.Join(dir, "running.json"))
}

// TestAttackRecordOfARepository puts another record into the directory of a running sandbox, as a
// git pull does. Nothing but the process of the sandbox is ever stopped. It takes longer than a
// second, because it runs the program many times.
func TestAttackRecordOfARepository(t *testing.T) {
	t.Parallel()
	dir, elsewhere := filepath.Join(t.TempDir(), "app"), filepath.Join(t.TempDir(), "elsewhere")
	p, other := startProgram(t, dir), startProgram(t, elsewhere)
	genuine, foreign := announced(t, p, dir), announced(t, other, elsewhere)
	b := startBystander(t)
	own := fmt.Sprintf(`"pid": %d`, p.cmd.Process.Pid)
	if !strings.Contains(genuine, own) {
		t.Fatalf("the record does not name process %d: %s", p.cmd.Process.Pid, genuine)
	}
	planted := func(pid int) string {
		return fmt.Sprintf(`{"name": "x\u001b[2J\nkinproc: all is well", "pid": %d,
			"url": "https://\u001b]0;owned\u0007", "kubeconfig": "/etc/hostname; touch x\u001b"}`, pid)
	}
	for name, record := range map[string]string{
		"of old":              planted(b.Process.Pid),
		"of a process":        `{"mac": "00", "running": ` + planted(b.Process.Pid) + `}`,
		"of a group":          `{"running": ` + planted(-b.Process.Pid) + `}`,
		"of all processes":    `{"mac": "", "running": ` + planted(-1) + `}`,
		"of the own group":    `{"running": ` + planted(0) + `}`,
		"of another sandbox":  foreign,
		"with another number": strings.Replace(genuine, own, `"pid": `+strconv.Itoa(b.Process.Pid), 1),
		"no record":           "\x1b[2J",
	} {
		write(t, filepath.Join(dir, "running.json"), record)
		calls := [][]string{
			{"stop", "--data-dir", dir}, {"stop", "--all"}, {"delete", "--data-dir", dir},
		}
		if name == "of a process" { // the others read it in the same way
			calls = append(calls, []string{"delete", "--all"}, []string{"status", "--data-dir", dir},
				[]string{"list"}, []string{"logs", "--data-dir", dir})
		}
		for _, args := range calls {
			call := fmt.Sprintf("kinproc %s with a record %s", strings.Join(args, " "), name)
			out, exit := p.kinproc(args...)
			b.mustLive(t, call)
			if strings.ContainsAny(out, "\x1b\x07") {
				t.Errorf("%s acts on the terminal: %q", call, out)
			}
			if args[0] == "list" {
				if !strings.Contains(out, "untrusted") {
					t.Errorf("%s: %s", call, out)
				}
			} else if exit != 1 || !strings.Contains(out, "running.json is not trusted: ") ||
				!strings.Contains(out, "remove it") || strings.Count(out, "\n") != 1 {
				t.Errorf("%s exits with %d and prints %s", call, exit, out)
			}
		}
		select {
		case <-p.ended:
			t.Fatalf("a record %s has stopped the sandbox", name)
		case <-other.ended:
			t.Fatalf("a record %s has stopped another sandbox", name)
		default:
		}
	}

	// Without the record, the kernel knows which process serves the directory.
	if err := os.Remove(filepath.Join(dir, "running.json")); err != nil {
		t.Fatal(err)
	}
	if out, exit := p.kinproc("status", "--data-dir", dir); exit != 1 ||
		!strings.Contains(out, "its running.json was removed") {
		t.Errorf("kinproc status exits with %d and prints %s", exit, out)
	}
	if out, exit := p.kinproc("stop", "--data-dir", dir); exit != 0 || out != "app stopped\n" {
		t.Errorf("kinproc stop exits with %d and prints %s", exit, out)
	}
	<-p.ended
}

// TestAttackRecordOfAnotherRun puts the record of an earlier run back, whose process ID may be that
// of any process by now, and takes away the lock by which the kernel knows the right one.
func TestAttackRecordOfAnotherRun(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "app")
	p := startProgram(t, dir)
	old := announced(t, p, dir)
	p.kill()
	if out, exit := p.kinproc("stop", "--data-dir", dir); exit != 1 ||
		!strings.Contains(out, "is not running") {
		t.Errorf("after kill -9, kinproc stop exits with %d and prints %s", exit, out)
	}
	p = startProgram(t, dir)
	record := announced(t, p, dir)
	write(t, filepath.Join(dir, "running.json"), old)
	for _, command := range []string{"stop", "delete"} {
		out, exit := p.kinproc(command, "--data-dir", dir)
		if exit != 1 || !strings.Contains(out, "was not stopped: process "+
			strconv.Itoa(p.cmd.Process.Pid)+" has the lock") {
			t.Errorf("kinproc %s exits with %d and prints %s", command, exit, out)
		}
	}
	write(t, filepath.Join(dir, "running.json"), record)
	move(t, filepath.Join(dir, "ready.lock"), filepath.Join(dir, "away"))
	for _, again := range []string{"missing", "replaced"} {
		out, exit := p.kinproc("stop", "--data-dir", dir)
		if exit != 1 || !strings.Contains(out, "was not stopped: no process has the lock") {
			t.Errorf("with the lock %s, kinproc stop exits with %d and prints %s", again, exit, out)
		}
		write(t, filepath.Join(dir, "ready.lock"), "")
	}
	move(t, filepath.Join(dir, "away"), filepath.Join(dir, "ready.lock"))
	if out, exit := p.kinproc("delete", "--data-dir", dir); exit != 0 {
		t.Errorf("kinproc delete exits with %d and prints %s", exit, out)
	}
	<-p.ended
}
