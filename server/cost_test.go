package server_test

import (
	"maps"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/kinproc/kinproc/server"
)

// unused holds the group versions that the server itself neither reads nor writes.
var unused = map[string]string{
	"apps/v1":                "false",
	"autoscaling/v1":         "false",
	"autoscaling/v2":         "false",
	"batch/v1":               "false",
	"certificates.k8s.io/v1": "false",
	"node.k8s.io/v1":         "false",
	"policy/v1":              "false",
	"resource.k8s.io/v1":     "false",
	"events.k8s.io/v1":       "false",
}

// awaitCollection waits until the server has been garbage-collected, when its cleanup closes gone.
// Goroutines of the server's last reads live for another three seconds.
func awaitCollection(gone <-chan struct{}) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-gone:
			return
		case <-tick.C:
			runtime.GC()
		}
	}
}

// BenchmarkKinds measures the cost of kinds that are not used: the time to start, the live heap and
// the number of goroutines without the unused group versions, with the group versions that are
// served by default, and with all of them.
func BenchmarkKinds(b *testing.B) {
	for name, config := range map[string]map[string]string{
		"few":     unused,
		"default": nil,
		"all":     {"api/all": "true"},
	} {
		b.Run(name, func(b *testing.B) {
			var ready []time.Duration
			var heap, goroutines []float64
			for b.Loop() {
				began := time.Now()
				s, err := server.New(server.Options{RuntimeConfig: maps.Clone(config)})
				if err != nil {
					b.Fatal(err)
				}
				if err := s.Start(b.Context()); err != nil {
					b.Fatal(err)
				}
				ready = append(ready, time.Since(began))
				runtime.GC()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				heap = append(heap, float64(m.HeapAlloc)/(1<<20))
				goroutines = append(goroutines, float64(runtime.NumGoroutine()))
				if err := s.Stop(b.Context()); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				gone := make(chan struct{})
				runtime.AddCleanup(s, func(gone chan struct{}) { close(gone) }, gone)
				s = nil
				awaitCollection(gone)
				b.StartTimer()
			}
			reportMedian(b, "ready-ms", ready)
			slices.Sort(heap)
			slices.Sort(goroutines)
			b.ReportMetric(heap[len(heap)/2], "heap-MiB")
			b.ReportMetric(goroutines[len(goroutines)/2], "goroutines")
		})
	}
}
