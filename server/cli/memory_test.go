package cli

import (
	"context"
	"runtime/metrics"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Memory is returned once after work, and not during it.
func TestWorkRests(t *testing.T) {
	t.Parallel()
	var w work
	var allocated uint64
	for i, period := range []struct {
		allocates, live uint64
		rests           bool
	}{
		{allocates: 100 << 20},                // a start
		{allocates: 1 << 20},                  // rest, but after too little
		{allocates: 200 << 20},                // work
		{allocates: 20 << 20},                 // less work
		{allocates: 1 << 20, rests: true},     // rest
		{allocates: 1 << 20},                  // nothing new
		{allocates: 15 << 20},                 // nearly work
		{allocates: 250 << 20},                // work
		{allocates: 15 << 20, rests: true},    // rest
		{allocates: 300 << 20, live: 1 << 30}, // work
		{live: 1 << 30},                       // rest, but after too little for so large a heap
		{allocates: 800 << 20, live: 1 << 30}, // work
		{live: 1 << 30, rests: true},          // rest
	} {
		allocated += period.allocates
		if rests := w.rests(allocated, period.live); rests != period.rests {
			t.Errorf("period %d: rests: %v", i, rests)
		}
	}
}

func TestReturnMemory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		collections := func() uint64 {
			forced := []metrics.Sample{{Name: "/gc/cycles/forced:gc-cycles"}}
			metrics.Read(forced)
			return forced[0].Value.Uint64()
		}
		var returning sync.WaitGroup
		ctx, stop := context.WithCancel(t.Context())
		returning.Go(func() { returnMemory(ctx) })
		var garbage []byte
		for range workBytes >> 20 {
			garbage = append(garbage[:0:0], make([]byte, 1<<20)...)
		}
		before := collections()
		periods := 0
		for ; collections() == before && periods < 1000; periods++ {
			time.Sleep(restPeriod) // other tests may allocate meanwhile
		}
		if collections() == before {
			t.Errorf("no garbage was collected in %d periods of rest", periods)
		}
		stop()
		returning.Wait()
	})
}
