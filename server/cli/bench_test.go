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

// settling is how long to wait before measuring a server's memory, so that the garbage of the start
// has been collected.
const settling = 6 * time.Second

// BenchmarkProgram measures the program as a user runs it: the time from its start until its
// kubeconfig exists, the resident memory then and when it is idle and has given back the pages of
// its executable, and the time from Ctrl-C until it has ended. It reports medians.
func BenchmarkProgram(b *testing.B) {
	// Measure a separate executable: the test binary would share its pages with the test.
	dir := b.TempDir()
	if out, err := exec.Command("go", "build", "-o", dir, "github.com/kinproc/kinproc").
		CombinedOutput(); err != nil {
		b.Fatalf("go build: %v\n%s", err, out)
	}
	b.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	var ready, stop, mapped, resident []float64
	for b.Loop() {
		began := time.Now()
		p := startProgram(b, filepath.Join(b.TempDir(), "data"))
		p.client()
		ready = append(ready, float64(time.Since(began).Milliseconds()))
		mapped = append(mapped, residentMiB(b, p.cmd.Process.Pid))
		<-time.After(settling)
		resident = append(resident, residentMiB(b, p.cmd.Process.Pid))
		began = time.Now()
		if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
			b.Fatal(err)
		}
		<-p.ended
		stop = append(stop, float64(time.Since(began).Milliseconds()))
	}
	for unit, values := range map[string][]float64{
		"ready-ms":  ready,
		"ready-MiB": mapped,
		"idle-MiB":  resident,
		"stop-ms":   stop,
	} {
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
