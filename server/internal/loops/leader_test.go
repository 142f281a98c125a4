package loops

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// slowLock is a lock whose updates take a while.
type slowLock struct {
	resourcelock.Interface
	takes time.Duration
	err   error
}

// Update implements resourcelock.Interface.
func (l *slowLock) Update(context.Context, resourcelock.LeaderElectionRecord) error {
	time.Sleep(l.takes)
	return l.err
}

type deadlines []time.Duration

// RoundTrip implements http.RoundTripper. It notes how long the request may take; 0 is for ever.
func (d *deadlines) RoundTrip(r *http.Request) (*http.Response, error) {
	at, ok := r.Context().Deadline()
	var left time.Duration
	if ok {
		left = time.Until(at)
	}
	*d = append(*d, left)
	return httptest.NewRecorder().Result(), nil
}

// Loops whose lease was not renewed in time write no more, though their context goes on.
func TestNoWritesAfterTheLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lock := &slowLock{takes: 1500 * time.Millisecond}
		l := &lease{Interface: lock}
		update := func() error { return l.Update(t.Context(), resourcelock.LeaderElectionRecord{}) }
		if err := update(); err != nil {
			t.Fatal(err)
		}
		var sent deadlines
		transport := inTerm{l, &sent}
		do := func(method string) error {
			r := httptest.NewRequestWithContext(t.Context(), method, "/", nil)
			response, err := transport.RoundTrip(r)
			if err == nil {
				_ = response.Body.Close()
			}
			return err
		}
		wantLeft := func(want time.Duration) {
			t.Helper()
			if err := do(http.MethodPost); err != nil {
				t.Fatal(err)
			}
			if got := sent[len(sent)-1]; got != want {
				t.Errorf("a write may take %s, want %s", got, want)
			}
		}
		// The renewal counts from when it was sent.
		wantLeft(900 * time.Millisecond)
		if err := update(); err != nil {
			t.Fatal(err)
		}
		wantLeft(900 * time.Millisecond)
		lock.takes, lock.err = 900*time.Millisecond, errors.New("etcd is gone")
		if err := update(); !errors.Is(err, lock.err) {
			t.Fatal(err)
		}
		if err := do(http.MethodPut); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a write after the lease: %v", err)
		}
		if err := do(http.MethodGet); err != nil || sent[len(sent)-1] != 0 {
			t.Errorf("a read after the lease: %v, with a deadline in %s", err, sent[len(sent)-1])
		}
	})
}
