//go:build unix

package cli_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestStopLeavesOthersAlone calls kinproc stop while a start waits, in a directory whose last
// process was killed and whose process ID belongs to somebody else now. It takes as long as the
// start waits for another program to unlock the kubeconfig.
func TestStopLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	p := startProgram(t, dir)
	p.client()
	announced := filepath.Join(dir, "running.json")
	var record map[string]any
	eventuallyRead(t, announced, &record)
	p.kill()

	other := exec.Command("sleep", "600")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- other.Wait() }()
	record["pid"] = other.Process.Pid
	data, err := json.Marshal(record)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(announced, data, 0o600); err != nil {
		t.Fatal(err)
	}

	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig+".lock", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p = startProgram(t, dir, "--kubeconfig="+kubeconfig)
	for stopped := false; !stopped; {
		select {
		case <-p.ended:
			stopped = true
		case err := <-ended:
			t.Fatalf("kinproc stop has ended a process that is not its own: %v", err)
		default:
			out, err := exec.Command("kinproc", "stop", "--data-dir="+dir).CombinedOutput()
			if err == nil {
				t.Fatalf("kinproc stop has stopped something: %s", out)
			}
		}
	}
	if err := other.Process.Kill(); err != nil {
		t.Errorf("the other process has ended: %v", err)
	}
	<-ended
}

// eventuallyRead reads a file of JSON once it exists.
func eventuallyRead(t *testing.T, path string, v any) {
	t.Helper()
	for t.Context().Err() == nil {
		if data, err := os.ReadFile(path); err == nil {
			if err := json.Unmarshal(data, v); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
}
