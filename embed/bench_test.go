package embed_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/kinproc/kinproc/embed"
)

var modes = map[string]bool{"ephemeral": true, "durable": false}

func BenchmarkStart(b *testing.B) {
	for name, ephemeral := range modes {
		b.Run(name, func(b *testing.B) {
			var ready, stopping time.Duration
			for b.Loop() {
				dir := b.TempDir()
				began := time.Now()
				e, err := embed.Start(b.Context(), embed.Options{Dir: dir, Ephemeral: ephemeral})
				if err != nil {
					b.Fatal(err)
				}
				ready += time.Since(began)
				began = time.Now()
				if err := e.Stop(context.Background()); err != nil {
					b.Fatal(err)
				}
				stopping += time.Since(began)
				b.StopTimer()
				if err := os.RemoveAll(dir); err != nil { // etcd preallocates 64 MB for a log
					b.Fatal(err)
				}
				b.StartTimer()
			}
			b.ReportMetric(float64(ready.Microseconds())/1000/float64(b.N), "ready-ms/op")
			b.ReportMetric(float64(stopping.Microseconds())/1000/float64(b.N), "stop-ms/op")
		})
	}
}

func BenchmarkPut(b *testing.B) {
	value := strings.Repeat("x", 1024)
	for name, ephemeral := range modes {
		b.Run(name, func(b *testing.B) {
			e := start(b, embed.Options{Ephemeral: ephemeral})
			for b.Loop() {
				put(b, e, "/key", value)
			}
		})
	}
}

func BenchmarkGet(b *testing.B) {
	e := start(b, embed.Options{Ephemeral: true})
	put(b, e, "/key", strings.Repeat("x", 1024))
	for b.Loop() {
		get(b, e, "/key")
	}
}
