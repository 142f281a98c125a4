package looptest

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
)

// BenchmarkTimeInBubble measures how long some days take in a bubble, with all control loops and a
// node, and how much memory the process uses after the first day and after the last.
func BenchmarkTimeInBubble(b *testing.B) {
	for _, c := range []struct {
		name string
		days int
		yaml string
	}{
		{"idle/days=1", 1, ""},
		{"hourly-job/days=1", 1, hourly},
		{"hourly-job/days=30", 30, hourly},
		{"nightly-job/days=30", 30, strings.Replace(hourly, "0 * * * *", "0 3 * * *", 1)},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				inBubbleOf(b, func(t *testing.T) {
					inBubble(t, func(_ *testing.T, _ kubernetes.Interface, apply func(yaml string)) {
						if c.yaml != "" {
							apply(c.yaml)
						}
						time.Sleep(24 * time.Hour)
						b.ReportMetric(usedMiB(), "MiB-after-a-day")
						time.Sleep(time.Duration(c.days-1) * 24 * time.Hour)
						b.ReportMetric(usedMiB(), "MiB-at-the-end")
					})
				})
			}
		})
	}
}

// hourly is a CronJob whose pods run for a minute.
const hourly = `
apiVersion: batch/v1
kind: CronJob
metadata: {name: hourly}
spec:
  schedule: "0 * * * *"
  jobTemplate:
    spec:
      template:
        metadata: {annotations: {kinproc.dev/run-for: 1m}}
        spec:
          restartPolicy: Never
          containers: [{name: a, image: a}]
`

// inBubbleOf runs a test in a benchmark, because package synctest takes only tests.
func inBubbleOf(b *testing.B, f func(*testing.T)) {
	if !testing.RunTests(func(string, string) (bool, error) { return true, nil },
		[]testing.InternalTest{{Name: b.Name(), F: f}}) {
		b.Fail()
	}
}

// usedMiB returns how much memory the process uses after a garbage collection.
func usedMiB() float64 {
	runtime.GC()
	var now runtime.MemStats
	runtime.ReadMemStats(&now)
	return float64(now.HeapAlloc) / (1 << 20)
}
