package simulated

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// gathering lets requests wait until there are as many as there may be at once.
type gathering struct {
	mu       sync.Mutex
	waiting  int
	complete chan struct{}
}

// RoundTrip implements http.RoundTripper.
func (g *gathering) RoundTrip(r *http.Request) (*http.Response, error) {
	g.mu.Lock()
	if g.waiting++; g.waiting == workers {
		close(g.complete)
	}
	g.mu.Unlock()
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// Leases are renewed at once, so that those of thousands of nodes do not expire meanwhile. But
// there are only so many requests at a time.
func TestLeasesAreRenewedAtOnce(t *testing.T) {
	t.Parallel()
	g := &gathering{complete: make(chan struct{})}
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://nowhere", Transport: g, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	n := othersNodes(t, Config{Client: client})
	for i := range 3 * workers {
		name := fmt.Sprint(i)
		n.nodeSeen(othersNode(name))
		n.place(n.byName[name])
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- n.leases.Run(ctx, workers, n.renewLease) }()
	select {
	case <-g.complete:
	case <-time.After(time.Minute):
		t.Error("the leases are renewed one after the other")
	}
	cancel()
	if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if g.waiting > workers {
		t.Errorf("%d requests at once, want %d at most", g.waiting, workers)
	}
}

// However many nodes there are, the times of their first renewals are not all in one half of the
// period, whatever nodes have come and gone before.
func TestLeasesAreSpread(t *testing.T) {
	t.Parallel()
	for _, from := range []int{0, 7, 32000} {
		for _, count := range []int{2, 10, 1000} {
			early := 0
			for i := range count {
				at := spread(from + i)
				if at < 0 || at >= 1 {
					t.Fatalf("node %d has %f", from+i, at)
				}
				if at < 0.5 {
					early++
				}
			}
			if early < count/2-1 || early > count/2+1 {
				t.Errorf("of %d nodes from %d on, %d are early", count, from, early)
			}
		}
	}
}

// Leases are renewed together, none too late, and none again and again until the next tick.
func TestLeasesAreRenewedTogether(t *testing.T) {
	t.Parallel()
	tick := time.Unix(1000, 0)
	for _, c := range []struct{ after, renewal, want time.Duration }{
		{0, 10 * time.Second, 10 * time.Second},
		{time.Millisecond, 10 * time.Second, 10*time.Second - time.Millisecond},
		{400 * time.Millisecond, 300 * time.Millisecond, 100 * time.Millisecond},
		{100 * time.Millisecond, 300 * time.Millisecond, 300 * time.Millisecond},
		{0, 300 * time.Millisecond, 300 * time.Millisecond},
	} {
		if got := untilTick(tick.Add(c.after), c.renewal); got != c.want {
			t.Errorf("%s after a tick, %s becomes %s, want %s", c.after, c.renewal, got, c.want)
		}
	}
}
