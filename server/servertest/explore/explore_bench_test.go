package explore_test

import (
	"context"
	"testing"
	"time"

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
	for b.Loop() {
		if !testing.RunTests(func(string, string) (bool, error) { return true, nil },
			[]testing.InternalTest{{Name: b.Name(), F: func(t *testing.T) { explore.Run(t, test) }}}) {
			b.FailNow()
		}
	}
	b.ReportMetric(b.Elapsed().Seconds()/float64(disturbances*b.N), "s/disturbance")
}
