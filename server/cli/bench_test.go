//go:build linux

package cli_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
)

// settling is how long to wait before measuring a server's memory, so that the garbage of the start
// has been collected.
const settling = 6 * time.Second

// BenchmarkProgram measures the program as a user runs it: the time from its start until its
// kubeconfig exists, the resident memory then and when it is idle, the CPU time that it takes when
// it is idle, and the time from Ctrl-C until it has ended. It reports medians.
func BenchmarkProgram(b *testing.B) {
	buildProgram(b)
	for name, args := range map[string][]string{
		"default": nil,
		"without": {"--controllers=-*", "--simulate-nodes=0"},
	} {
		b.Run(name, func(b *testing.B) {
			figures := map[string][]float64{}
			report := func(unit string, value float64) { figures[unit] = append(figures[unit], value) }
			for b.Loop() {
				began := time.Now()
				p := startProgram(b, filepath.Join(b.TempDir(), "data"), args...)
				p.client()
				report("ready-ms", float64(time.Since(began).Milliseconds()))
				report("ready-MiB", residentMiB(b, p.cmd.Process.Pid))
				<-time.After(settling)
				report("idle-MiB", residentMiB(b, p.cmd.Process.Pid))
				report("idle-CPU-%", cpuPercent(b, p.cmd.Process.Pid))
				began = time.Now()
				if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
					b.Fatal(err)
				}
				<-p.ended
				report("stop-ms", float64(time.Since(began).Milliseconds()))
			}
			for unit, values := range figures {
				slices.Sort(values)
				b.ReportMetric(values[len(values)/2], unit)
			}
		})
	}
}

// BenchmarkTenThousandPods measures what the program needs to hold 10,000 pods on 1,000 simulated
// nodes: resident memory, and CPU time when nothing happens but leases.
func BenchmarkTenThousandPods(b *testing.B) { benchmarkPods(b, 1000, 10_000) }

// BenchmarkFiftyThousandPods does so with 50,000 pods on 5,000 nodes. It takes minutes.
func BenchmarkFiftyThousandPods(b *testing.B) { benchmarkPods(b, 5000, 50_000) }

func benchmarkPods(b *testing.B, nodes, pods int32) {
	buildProgram(b)
	for b.Loop() {
		p := startProgram(b, filepath.Join(b.TempDir(), "data"), "--ephemeral",
			fmt.Sprintf("--simulate-nodes=%d", nodes))
		deployments := p.client().AppsV1().Deployments("default")
		labels := map[string]string{"app": "web"}
		began := time.Now()
		if _, err := deployments.Create(b.Context(), &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: "web"},
			Spec: appsv1.DeploymentSpec{
				Replicas: &pods,
				Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels},
					Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web"}}},
				},
			},
		}, metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
		if err := wait.PollUntilContextTimeout(b.Context(), time.Second, time.Hour, false,
			func(ctx context.Context) (bool, error) {
				web, err := deployments.Get(ctx, "web", metav1.GetOptions{})
				return err == nil && web.Status.AvailableReplicas == pods, err
			}); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(time.Since(began).Seconds(), "available-s")
		b.ReportMetric(residentMiB(b, p.cmd.Process.Pid), "busy-MiB")
		<-time.After(2 * settling)
		b.ReportMetric(residentMiB(b, p.cmd.Process.Pid), "idle-MiB")
		b.ReportMetric(cpuPercent(b, p.cmd.Process.Pid), "idle-CPU-%")
		p.kill()
	}
}

// buildProgram builds an executable of its own, because the test binary would share its pages with
// the test.
func buildProgram(b *testing.B) {
	b.Helper()
	dir := b.TempDir()
	if out, err := exec.Command("go", "build", "-o", dir, "github.com/kinproc/kinproc").
		CombinedOutput(); err != nil {
		b.Fatalf("go build: %v\n%s", err, out)
	}
	b.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
}

// cpuPercent returns how much of a core a process takes in the next 20 s, in which each lease is
// renewed.
func cpuPercent(b *testing.B, pid int) float64 {
	b.Helper()
	const measured = 20 * time.Second
	before := cpuTime(b, pid)
	<-time.After(measured)
	return 100 * (cpuTime(b, pid) - before).Seconds() / measured.Seconds()
}

// cpuTime returns the CPU time that a process has taken, of which Linux counts hundredths of a
// second.
func cpuTime(b *testing.B, pid int) time.Duration {
	b.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	// The name of the program, in parentheses, may hold spaces. The 12th and 13th fields after the
	// name are the times in user and kernel mode.
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	var total time.Duration
	for _, field := range fields[11:13] {
		ticks, err := strconv.Atoi(field)
		if err != nil {
			b.Fatal(err)
		}
		total += time.Duration(ticks) * 10 * time.Millisecond
	}
	return total
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
