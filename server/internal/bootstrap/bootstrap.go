// Package bootstrap makes and keeps what every control plane has: namespaces, roles, the service
// kubernetes and so on. Each is a [Part].
package bootstrap

import (
	"context"
	"fmt"
	"net"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/chain"
	"github.com/kinproc/kinproc/server/internal/auth"
	"github.com/kinproc/kinproc/server/internal/controllers/loop"
	"github.com/kinproc/kinproc/server/internal/etcdconn"
	"github.com/kinproc/kinproc/server/internal/stopper"
)

// Config says what the control plane is that the parts describe.
type Config struct {
	Client    kubernetes.Interface
	Informers loop.Informers
	Storage   *chain.Storage
	Etcd      *clientv3.Client
	Access    *auth.Access
	Services  *Services
	// Address is where the server listens, and AdvertiseAddress what else it says, if it is set.
	Address          net.Addr
	AdvertiseAddress string
	// Identity is the ID of this API server, or empty.
	Identity string
	// Aggregates, PublishesRoots and PublishesTrust are true if the control loops run that
	// aggregate cluster roles, that publish the root certificates in config maps, and that publish
	// them as a ClusterTrustBundle.
	Aggregates, PublishesRoots, PublishesTrust bool
	// SharesEtcd is true if other control planes may use the same etcd.
	SharesEtcd bool
	// Forked is true if the storage began with a snapshot, and Ready if that was taken from a
	// control plane of this process, so that it holds what a start would ensure.
	Forked, Ready bool
	// ReadOnly is true if nothing may be written.
	ReadOnly bool
}

// Bootstrap are the parts of one control plane.
type Bootstrap struct {
	config  Config
	stopper *stopper.Stopper
	parts   []Part

	// written is closed when the first objects have been written. Then complete is true if the
	// storage holds all of them as they have to be, so that hooks need not look.
	written  chan struct{}
	complete bool
}

// Open returns the parts, which are not there yet.
func Open(c Config, s *stopper.Stopper) *Bootstrap {
	return &Bootstrap{config: c, stopper: s, parts: c.parts(s), written: make(chan struct{})}
}

// Begin begins to write the first objects. The function that it returns waits for that.
func (b *Bootstrap) Begin(ctx context.Context) (wait func() error) {
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.complete, err = b.write(ctx)
	}()
	return func() error {
		<-done
		return err
	}
}

func (b *Bootstrap) write(ctx context.Context) (complete bool, err error) {
	if err := b.config.Storage.RecallResets(ctx); err != nil || b.config.ReadOnly {
		return false, err
	}
	if b.config.Ready {
		return b.adopt(ctx)
	}
	return b.writeFirst(ctx, b.parts)
}

// Finish adds the parts that are known only when the chain has been made, after Begin has ended.
func (b *Bootstrap) Finish(ctx context.Context, more ...Part) error {
	b.parts = append(slices.Clip(b.parts), more...)
	if b.complete && !b.config.Ready {
		var err error
		if b.complete, err = b.writeFirst(ctx, more); err != nil {
			return err
		}
	}
	close(b.written)
	return nil
}

// Hooks returns the hooks of the parts by their names. They make the start fail if a part fails,
// with the hook failing in /readyz. Returning the error to the Kubernetes libraries would end the
// process instead.
func (b *Bootstrap) Hooks() map[string]func(context.Context) {
	hooks := map[string]func(context.Context){}
	if b.config.ReadOnly {
		return hooks
	}
	for _, p := range b.parts {
		if p.Hook == "" {
			continue
		}
		hooks[p.Hook] = func(ctx context.Context) {
			done := make(chan struct{})
			if b.stopper.Go(func() { b.run(ctx, p); close(done) }) {
				<-done
			}
		}
	}
	return hooks
}

// run makes and keeps a part.
//
// A write that a policy, webhook or quota refuses does not make the start fail, because the user
// can remove the policy, webhook or quota only while the server runs. The part is then retried in
// the background.
func (b *Bootstrap) run(ctx context.Context, p Part) {
	attempts := wait.Backoff{Steps: 10, Duration: 10 * time.Millisecond, Factor: 2, Jitter: 0.5}
	var err error
	_ = wait.ExponentialBackoffWithContext(ctx, attempts, func(ctx context.Context) (bool, error) {
		err = b.make(ctx, p)
		return !overtaken(err), nil
	})
	switch {
	case err == nil, ctx.Err() != nil:
	case refused(err) && !etcdconn.IsDamaged(b.config.Storage):
		utilruntime.HandleErrorWithContext(ctx, err,
			"The server's own write was refused and will be retried", "hook", p.Hook)
		b.stopper.Go(func() { b.retry(ctx, p) })
	default:
		b.stopper.Fail(fmt.Errorf("%s: %w", p.Hook, err))
		<-ctx.Done()
	}
}

// overtaken reports whether err means that somebody else has written the same object meanwhile,
// such as another control plane of the same etcd that starts at the same time.
func overtaken(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)
}

// make makes and keeps a part. It can be called again after an error.
func (b *Bootstrap) make(ctx context.Context, p Part) error {
	select {
	case <-b.written:
	case <-ctx.Done():
		return nil
	}
	enough := b.complete && (p.First != nil || p.Adopt != nil)
	if p.Ensure != nil && !enough {
		if err := p.Ensure(ctx); err != nil {
			return err
		}
	}
	if p.Keep != nil {
		if err := p.Keep(ctx, b.complete); err != nil {
			return err
		}
	}
	if p.Every > 0 {
		b.stopper.Every(p.Every, func(ctx context.Context) {
			if err := p.Ensure(ctx); err != nil && ctx.Err() == nil {
				utilruntime.HandleErrorWithContext(ctx, err,
					"Failed to restore an object of the control plane",
					"hook", p.Hook)
			}
		})
	}
	return nil
}

const refusedInterval = 10 * time.Second

func (b *Bootstrap) retry(ctx context.Context, p Part) {
	_ = wait.PollUntilContextCancel(ctx, refusedInterval, false,
		func(ctx context.Context) (bool, error) {
			err := b.make(ctx, p)
			if err != nil && ctx.Err() == nil {
				utilruntime.HandleErrorWithContext(ctx, err,
					"The server's own write was refused and will be retried")
			}
			return err == nil, nil
		})
}

// Complete reports whether the storage holds all first objects as they have to be.
func (b *Bootstrap) Complete() bool {
	<-b.written
	return b.complete
}
