package explore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/server/servertest/explore"
)

// BenchmarkDisturbance measures how long a disturbance takes, outside of bubbles, of a controller
// that takes 100 ms for its work. The two undisturbed runs count too. As many are tried at the same
// time as there are processors.
func BenchmarkDisturbance(b *testing.B) {
	const disturbances = 10
	work := copier(false)
	test := copying(false)
	test.Max = disturbances
	test.Controller = func(ctx context.Context, config *rest.Config) error {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(100 * time.Millisecond):
			return work(ctx, config)
		}
	}
	explorations(b, test)
}

// BenchmarkInBubbles measures 200 disturbances in bubbles of a controller that creates 40 objects.
func BenchmarkInBubbles(b *testing.B) {
	test := copying(false)
	test.InBubbles, test.Max = true, 200
	test.Controller = func(ctx context.Context, config *rest.Config) error {
		maps := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps("default")
		return inCache(ctx, config, func(*corev1.ConfigMap) error {
			for i := range 40 {
				for {
					_, err := maps.Create(ctx, named(fmt.Sprint("copy-", i)), metav1.CreateOptions{})
					if ignoreExists(err) == nil || ctx.Err() != nil {
						break
					}
				}
			}
			return nil
		})
	}
	explorations(b, test)
}

// explorations repeats an exploration, and reports how long a disturbance takes.
func explorations(b *testing.B, test explore.Test) {
	for b.Loop() {
		if !testing.RunTests(func(string, string) (bool, error) { return true, nil },
			[]testing.InternalTest{{Name: b.Name(), F: func(t *testing.T) { explore.Run(t, test) }}}) {
			b.FailNow()
		}
	}
	b.ReportMetric(b.Elapsed().Seconds()/float64(test.Max*b.N), "s/disturbance")
}
