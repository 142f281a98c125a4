//go:build linux

package cli_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// settling is how long a server is left alone before its memory is looked at: what start-up left is collected by then.
const settling = 6 * time.Second

// BenchmarkProgram is the program as a user starts it: the time from its start until its kubeconfig is there, how much memory it holds when
// idle, and the time from Ctrl-C until its end; medians.
func BenchmarkProgram(b *testing.B) {
	// The test binary would share its pages with the test.
	dir := b.TempDir()
	if out, err := exec.Command("go", "build", "-o", dir, "github.com/kinproc/kinproc").CombinedOutput(); err != nil {
		b.Fatalf("go build: %v\n%s", err, out)
	}
	b.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	var ready, stop, resident []float64
	for b.Loop() {
		began := time.Now()
		p := startProgram(b, filepath.Join(b.TempDir(), "data"))
		p.client()
		ready = append(ready, float64(time.Since(began).Milliseconds()))
		<-time.After(settling)
		resident = append(resident, residentMiB(b, p.cmd.Process.Pid))
		began = time.Now()
		if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
			b.Fatal(err)
		}
		<-p.ended
		stop = append(stop, float64(time.Since(began).Milliseconds()))
	}
	for unit, values := range map[string][]float64{"ready-ms": ready, "idle-MiB": resident, "stop-ms": stop} {
		slices.Sort(values)
		b.ReportMetric(values[len(values)/2], unit)
	}
}

func residentMiB(b *testing.B, pid int) float64 {
	b.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		b.Fatal(err)
	}
	var size, pages int
	if _, err := fmt.Sscan(string(data), &size, &pages); err != nil {
		b.Fatal(err)
	}
	return float64(pages*os.Getpagesize()) / (1 << 20)
}
