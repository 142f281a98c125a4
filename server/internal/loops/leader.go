package loops

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"
)

// leaderLease is the name of the Lease, in kube-system, of the control plane that runs the control
// loops.
const leaderLease = "kinproc-controllers"

// How control planes that share an etcd elect the one that runs the control loops. The times are a
// fifth of kube-controller-manager's, so that another one takes over within five seconds.
//
// The lease counts whole seconds. A leader that cannot renew it stops leaderRetry and
// leaderDeadline after it last could, which leaves a fifth of leaderDuration until another one may
// lead.
const (
	leaderDuration = 3 * time.Second
	leaderDeadline = 2 * time.Second
	leaderRetry    = 400 * time.Millisecond
)

// whileLeading calls run whenever this control plane becomes the leader of those that share an
// etcd. The context of run ends when another one may be the leader. Run returns a function that
// waits until everything that it has started has ended.
func (l *loops) whileLeading(run func(context.Context) (wait func(), err error)) error {
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("elect a leader: %w", err)
	}
	l.lease = &lease{Interface: &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: leaderLease},
		Client:     l.Requests.Client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: host + "_" + uuid.NewString()},
	}}
	ctx, cancel := context.WithCancel(l.stopper.Context())
	ended := make(chan struct{})
	// The API must still be served when this control plane gives up the lease.
	if !l.stopper.Push("the lease of the control loops", func() error {
		cancel()
		<-ended
		return nil
	}) {
		cancel() // Stop has begun
		return nil
	}
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			if err := l.lead(ctx, run); err != nil {
				l.stopper.Fail(err)
				return
			}
		}
	}()
	return nil
}

// lead waits until this control plane is the leader, and then until it no longer is.
func (l *loops) lead(
	ctx context.Context, run func(context.Context) (wait func(), err error),
) error {
	var t term
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:          l.lease,
		LeaseDuration: leaderDuration,
		RenewDeadline: leaderDeadline,
		RetryPeriod:   leaderRetry,
		// The elector would release the lease before it ends the context of the loops, and would
		// try for leaderDeadline while another one leads already.
		ReleaseOnCancel: false,
		Callbacks: leaderelection.LeaderCallbacks{
			// The elector calls this function in a goroutine that nothing waits for.
			OnStartedLeading: func(leading context.Context) {
				if !t.begin() {
					return
				}
				if !l.stopper.Go(func() {
					defer t.loops.Done()
					wait, err := run(leading)
					if err != nil {
						l.stopper.Fail(err)
						return
					}
					<-leading.Done()
					wait()
				}) {
					t.loops.Done()
				}
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("elect a leader: %w", err)
	}
	elector.Run(ctx)
	t.end()
	if ctx.Err() == nil {
		klog.FromContext(ctx).Info(
			"Lost the lease of the control loops; another replica can run them now")
		return nil
	}
	if elector.IsLeader() {
		release(context.WithoutCancel(ctx), l.lease)
	}
	return nil
}

// lease is the lock of the leader. It knows until when the loops may write.
type lease struct {
	resourcelock.Interface
	until atomic.Pointer[time.Time]
}

// Create implements resourcelock.Interface.
func (l *lease) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.renew(func() error { return l.Interface.Create(ctx, record) })
}

// Update implements resourcelock.Interface.
func (l *lease) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.renew(func() error { return l.Interface.Update(ctx, record) })
}

// renew counts from the time at which the request is sent: others may see it written long before
// the answer arrives.
func (l *lease) renew(write func() error) error {
	until := time.Now().Add(leaderRetry + leaderDeadline)
	err := write()
	if err == nil {
		l.until.Store(&until)
	}
	return err
}

// inTerm lets nobody write when the lease may have expired. The elector ends the context of the
// loops then, but on a busy machine its timer may come late. The requests have a deadline too,
// which etcd observes.
type inTerm struct {
	lease *lease
	next  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t inTerm) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet {
		return t.next.RoundTrip(r)
	}
	until := *t.lease.until.Load()
	if !time.Now().Before(until) {
		return nil, fmt.Errorf("the lease of the control loops has expired: %w",
			context.DeadlineExceeded)
	}
	ctx, cancel := context.WithDeadline(r.Context(), until)
	defer cancel() // the response of a write is complete
	return t.next.RoundTrip(r.WithContext(ctx))
}

// term is the time for which this control plane leads.
type term struct {
	mu    sync.Mutex
	over  bool           // guarded by mu
	loops sync.WaitGroup // grows with mu
}

// begin reports whether the loops may start.
func (t *term) begin() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return false
	}
	t.loops.Add(1)
	return true
}

// end waits until the loops have ended. They do not start after that.
func (t *term) end() {
	t.mu.Lock()
	t.over = true
	t.mu.Unlock()
	t.loops.Wait()
}

// release gives the lease back, so that another control plane need not wait until it expires. If
// that fails, the other one waits.
func release(ctx context.Context, lock resourcelock.Interface) {
	ctx, cancel := context.WithTimeout(ctx, leaderDeadline)
	defer cancel()
	// The last renewal may have been interrupted, and be written only now.
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		record, _, err := lock.Get(ctx)
		if err != nil || record.HolderIdentity != lock.Identity() {
			return err
		}
		now := metav1.Now()
		return lock.Update(ctx, resourcelock.LeaderElectionRecord{
			LeaseDurationSeconds: 1, AcquireTime: now, RenewTime: now,
			LeaderTransitions: record.LeaderTransitions,
		})
	})
	if err != nil {
		klog.FromContext(ctx).Error(err, "The lease of the control loops was not released")
	}
}
