package loops

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

// leaderLease is the name of the Lease, in kube-system, of the control plane that runs the control
// loops.
const leaderLease = "kinproc-controllers"

// How control planes that share an etcd elect the one that runs the control loops. The times are a
// fifth of kube-controller-manager's or less, so that another one takes over within five seconds.
const (
	leaderDuration = 3500 * time.Millisecond
	leaderDeadline = 2500 * time.Millisecond
	leaderRetry    = 500 * time.Millisecond
)

// whileLeading calls run whenever this control plane becomes the leader of those that share an
// etcd. The context of run ends when another one may be the leader. Run returns a function that
// waits until everything that it has started has ended.
func (l *loops) whileLeading(run func(context.Context) (wait func(), err error)) error {
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("elect a leader: %w", err)
	}
	lock := &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: leaderLease},
		Client:     l.Requests.Client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: host + "_" + uuid.NewString()},
	}
	ctx, cancel := context.WithCancel(l.stopper.Context())
	ended := make(chan struct{})
	// The API must still be served when this control plane gives up the lease.
	if !l.stopper.Push("the lead of the control loops", func() error {
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
			if err := l.lead(ctx, lock, run); err != nil {
				l.stopper.Fail(err)
				return
			}
		}
	}()
	return nil
}

// lead waits until this control plane is the leader, and then until it no longer is.
func (l *loops) lead(
	ctx context.Context, lock resourcelock.Interface, run func(context.Context) (func(), error),
) error {
	ended := make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:            lock,
		LeaseDuration:   leaderDuration,
		RenewDeadline:   leaderDeadline,
		RetryPeriod:     leaderRetry,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			// The elector calls this function in a goroutine that nothing waits for.
			OnStartedLeading: func(leading context.Context) {
				if !l.stopper.Go(func() {
					defer close(ended)
					wait, err := run(leading)
					if err != nil {
						l.stopper.Fail(err)
						return
					}
					<-leading.Done()
					wait()
				}) {
					close(ended)
				}
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("elect a leader: %w", err)
	}
	elector.Run(ctx)
	if ctx.Err() == nil {
		klog.FromContext(ctx).Info("Lost the lead of the control loops, which go on elsewhere")
		<-ended
	}
	return nil
}
