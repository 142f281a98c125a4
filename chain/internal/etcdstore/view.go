package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/watch"
)

// View is a state of the past that the reads of a request see instead of the present.
type View struct {
	// Revision is that of the state, unless Behind is set. It may be in the future, and has no
	// effect until then.
	Revision int64
	// Behind is how many revisions the state is behind the present one.
	Behind int64
	// Released is closed when reads see the present again.
	Released <-chan struct{}
}

type viewKey struct{}

// WithView returns a context with whose reads the stores see a view. They read it from etcd, as an
// API server would whose watch caches are late.
func WithView(ctx context.Context, v View) context.Context {
	return context.WithValue(ctx, viewKey{}, &v)
}

// viewOf returns the view of a context, or nil.
func viewOf(ctx context.Context) *View {
	v, _ := ctx.Value(viewKey{}).(*View)
	if v == nil {
		return nil
	}
	select {
	case <-v.Released:
		return nil
	default:
		return v
	}
}

// at returns the revision of the view when now is the present one.
func (v *View) at(now int64) int64 {
	if v.Behind > 0 {
		return max(1, now-v.Behind)
	}
	return min(v.Revision, now)
}

// reader returns a function that reads from etcd as the view sees it. It does not change reads of a
// certain revision: they are the further pages of a list, and exact lists.
func (v *View) reader(kv clientv3.KV) func(
	ctx context.Context, key string, opts ...clientv3.OpOption,
) (*clientv3.GetResponse, error) {
	return func(
		ctx context.Context, key string, opts ...clientv3.OpOption,
	) (*clientv3.GetResponse, error) {
		if clientv3.OpGet(key, opts...).Rev() != 0 {
			return kv.Get(ctx, key, opts...)
		}
		now, err := kv.Get(ctx, key, clientv3.WithCountOnly())
		if err != nil {
			return nil, err
		}
		revision := v.at(now.Header.Revision)
		response, err := kv.Get(ctx, key, append(opts, clientv3.WithRev(revision))...)
		if errors.Is(err, rpctypes.ErrCompacted) {
			return nil, apierrors.NewResourceExpired(
				fmt.Sprintf("fault: revision %d has been compacted", revision))
		}
		if err == nil {
			response.Header.Revision = revision
		}
		return response, err
	}
}

// Revision returns the present revision of etcd.
func (b *Backend) Revision(ctx context.Context) (int64, error) {
	found, err := b.client.KV.Get(ctx, b.prefix, clientv3.WithCountOnly())
	if err != nil {
		return 0, err
	}
	return found.Header.Revision, nil
}

// viewed is a watch that sees a view. It keeps back the events after the view.
type viewed struct {
	watch.Interface
	events  chan watch.Event
	stop    context.CancelFunc
	stopped sync.WaitGroup
}

// view returns a watch that sees v.
func (b *Backend) view(ctx context.Context, v *View, w watch.Interface) watch.Interface {
	ctx, stop := context.WithCancel(ctx)
	viewed := &viewed{Interface: w, events: make(chan watch.Event), stop: stop}
	viewed.stopped.Go(func() {
		defer close(viewed.events)
		for event := range w.ResultChan() {
			if !b.await(ctx, v, revisionOf(event)) {
				return
			}
			select {
			case viewed.events <- event:
			case <-ctx.Done():
				return
			}
		}
	})
	return viewed
}

// ResultChan implements watch.Interface.
func (v *viewed) ResultChan() <-chan watch.Event { return v.events }

// Stop implements watch.Interface.
func (v *viewed) Stop() {
	v.stop()
	v.Interface.Stop()
	v.stopped.Wait()
}

// revisionOf returns the revision of an event, or 0 if it has none, as errors have.
func revisionOf(event watch.Event) int64 {
	object, err := meta.Accessor(event.Object)
	if err != nil {
		return 0
	}
	revision, err := strconv.ParseInt(object.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0
	}
	return revision
}

// await waits until a view has come to a revision, or is released. It reports whether it has.
func (b *Backend) await(ctx context.Context, v *View, revision int64) bool {
	if v.Behind == 0 {
		if revision <= v.Revision {
			return true
		}
		select {
		case <-v.Released:
			return true
		case <-ctx.Done():
			return false
		}
	}
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	changes := b.client.Watch(watching, b.prefix, clientv3.WithPrefix(),
		clientv3.WithRev(revision+v.Behind))
	for {
		select {
		case change, ok := <-changes:
			if !ok || change.Err() != nil {
				return false
			}
			if change.Header.Revision >= revision+v.Behind {
				return true
			}
		case <-v.Released:
			return true
		case <-ctx.Done():
			return false
		}
	}
}
