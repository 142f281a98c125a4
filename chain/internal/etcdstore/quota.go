package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	etcdkubernetes "go.etcd.io/etcd/client/v3/kubernetes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"

	"github.com/kinproc/kinproc/chain/internal/writers"
)

// Database is the database of an embedded etcd. Package embed describes its methods.
type Database interface {
	Room() Room
	MakeRoom(ctx context.Context) (oldest int64, err error)
	Shrink(ctx context.Context) error
}

// Room says how full a database is, in bytes.
type Room struct{ Quota, Limit, File, Used int64 }

// nearlyFull reports whether it is time to make room for a value of some bytes.
func (r Room) nearlyFull(size int64) bool {
	return r.Used+size > r.Quota-r.Quota/8 || r.File+size > r.Quota
}

// full reports whether a value of some bytes does not fit.
func (r Room) full(size int64) bool { return r.Used+size > r.Quota || r.File+size > r.Limit-margin }

// refills reports whether the unused part of a file is so large that ordinary writes do not fill it
// before old revisions are removed again.
func (r Room) refills(kept int64) bool { return r.File-r.Used < max(r.File/2, kept+kept/2) }

const (
	// margin is what the database may grow before its size is known again. Etcd commits every 100
	// ms.
	margin = 2 << 20
	// growth is what an update may add to an object while the database is full: a condition, say,
	// or what a finalizer waits for.
	growth = 1 << 10
	// makingPause is the pause between two attempts to make room. Each reads all keys.
	makingPause = 500 * time.Millisecond
	// statusStorageError is the reason of the error that says that the database is full.
	statusStorageError metav1.StatusReason = "StorageError"
)

// quota keeps the database of an embedded etcd within its quota. Without a database, it only
// explains the error of an etcd that is full. A write that does not fit waits until room has been
// made. If none can be made, it is refused, unless it deletes something or is as small as what it
// replaces: so objects can be deleted, whatever has to be written for that, and what is there goes
// on.
type quota struct {
	client   *clientv3.Client
	writers  *writers.Memory
	database Database
	kept     int64 // bytes of old revisions
	ctx      context.Context
	cancel   context.CancelFunc

	mu      sync.Mutex
	making  chan struct{} // closed when room has been made, or nil if nobody makes any
	changed bool          // something has been written since room was last made
	written int64         // bytes since then
	ended   time.Time     // of that
	running sync.WaitGroup
}

func (q *quota) start(client *clientv3.Client, w *writers.Memory, d Database, kept int64) {
	q.client, q.writers, q.database, q.kept, q.changed = client, w, d, kept, true
	q.ctx, q.cancel = context.WithCancel(client.Ctx())
}

func (q *quota) stop() {
	q.mu.Lock()
	q.cancel()
	q.mu.Unlock()
	q.running.Wait()
}

// replaced returns the size of what is replaced at a key, which is needed only if the database is
// so large that the size of its old revisions matters. An external etcd is not asked: the new value
// is about as large.
func (q *quota) replaced(ctx context.Context, key string, value []byte) (int64, error) {
	if q.database == nil {
		return int64(len(value)), nil
	}
	if q.database.Room().Used <= q.kept {
		return 0, nil
	}
	found, err := q.client.KV.Get(ctx, key, clientv3.WithSerializable())
	if err != nil || len(found.Kvs) == 0 {
		return 0, err
	}
	return int64(len(found.Kvs[0].Value)), nil
}

// admit returns an error if there is no room for a value that replaces one of some bytes. It waits
// until room has been made once since the value came. What others write meanwhile, such as leases,
// would promise a little room for ever.
func (q *quota) admit(ctx context.Context, value []byte, replaced int64) error {
	if q.database == nil {
		return nil
	}
	size := int64(len(value))
	var waited, made bool
	for {
		r := q.database.Room()
		if !r.nearlyFull(size) {
			return nil
		}
		full := r.full(size)
		waits := full && !isAllowedWhenFull(ctx, size, replaced, r)
		if waits && made {
			return refuseFull(r, size)
		}
		making, started := q.makeRoom(full)
		if !waits {
			return nil
		}
		if making == nil {
			return refuseFull(r, size)
		}
		waited, made = true, started || waited
		select {
		case <-making:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-q.ctx.Done():
			return refuseFull(r, size)
		}
	}
}

// isAllowedWhenFull reports whether a write goes on while the database is full. The space
// between the quota and the limit is for these writes. Etcd itself refuses them at the limit.
func isAllowedWhenFull(ctx context.Context, size, replaced int64, r Room) bool {
	if size <= replaced {
		return true
	}
	if who, ok := genericapirequest.UserFrom(ctx); ok && who.GetName() == user.APIServerUser {
		return true // what every control plane has
	}
	if info, ok := genericapirequest.RequestInfoFrom(ctx); ok && strings.HasPrefix(info.Verb, "delete") {
		return true
	}
	return replaced > 0 && size <= replaced+growth && r.File < (r.Quota+r.Limit)/2
}

// wrote notes that something has been written, with a value of some bytes. It makes room if the
// database has become too large.
func (q *quota) wrote(size int64) {
	if q.database == nil {
		return
	}
	q.mu.Lock()
	q.changed = true
	q.written += size
	q.mu.Unlock()
	switch r := q.database.Room(); {
	case r.nearlyFull(0):
		q.makeRoom(r.full(0))
	case !r.refills(q.kept):
		q.run("Rewriting the database file", q.database.Shrink)
	}
}

// makeRoom makes room in the background, if that promises some. It returns a channel that is closed
// after that, or nil if there is nothing to gain, and whether it is this call that makes it. Unless
// the database is full, there is enough to gain only from time to time.
func (q *quota) makeRoom(full bool) (made <-chan struct{}, started bool) {
	q.mu.Lock()
	enough := q.changed && (full || q.written >= q.database.Room().Quota/64)
	making := q.making
	q.mu.Unlock()
	if making != nil || !enough {
		return making, false
	}
	return q.run("Making room in the database", func(ctx context.Context) error {
		oldest, err := q.database.MakeRoom(ctx)
		if err == nil {
			q.writers.Forget(oldest)
		}
		return err
	})
}

// run runs a task in the background, after a pause. It returns a channel that is closed after that.
// If a task is running, it is that one's, and nothing is started.
func (q *quota) run(
	what string, task func(context.Context) error,
) (ended <-chan struct{}, started bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.making != nil || q.ctx.Err() != nil {
		return q.making, false
	}
	done := make(chan struct{})
	q.making = done
	pause := max(0, makingPause-time.Since(q.ended))
	q.running.Go(func() {
		defer close(done)
		select {
		case <-time.After(pause):
		case <-q.ctx.Done():
		}
		q.mu.Lock()
		q.changed, q.written = false, 0
		q.mu.Unlock()
		if err := task(q.ctx); err != nil && q.ctx.Err() == nil {
			klog.FromContext(q.ctx).Error(err, what+" failed, trying again later")
		}
		q.mu.Lock()
		q.making, q.ended = nil, time.Now()
		q.mu.Unlock()
	})
	return done, true
}

// refuseFull returns the error of a write of some bytes for which the database has no room.
func refuseFull(r Room, size int64) error {
	return storageError("the database of the control plane is full: %s of %s are in use, and this "+
		"takes %d bytes. Delete objects, or start the control plane with a larger --quota-backend-bytes",
		mebibytes(r.Used), mebibytes(r.Quota), size)
}

// explain returns an API error if etcd has refused to write some bytes because it is full, or else
// err.
func (q *quota) explain(err error, size int64) error {
	if !errors.Is(rpctypes.Error(err), rpctypes.ErrNoSpace) {
		return err
	}
	if q.database != nil {
		q.makeRoom(true)
		return refuseFull(q.database.Room(), size)
	}
	return storageError("etcd refuses to write because its database is full. Its administrator has to " +
		"compact it, defragment each member and disarm the alarm (etcdctl compaction, defrag, alarm " +
		"disarm), or raise its --quota-backend-bytes")
}

func storageError(format string, args ...any) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusInsufficientStorage, Reason: statusStorageError,
		Message: fmt.Sprintf(format, args...),
	}}
}

func mebibytes(bytes int64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }

// roomy writes what there is room for.
type roomy struct {
	etcdkubernetes.Interface
	backend *Backend
}

// OptimisticPut implements etcdkubernetes.Interface.
func (r roomy) OptimisticPut(
	ctx context.Context, key string, value []byte, expected int64, opts etcdkubernetes.PutOptions,
) (resp etcdkubernetes.PutResponse, err error) {
	b, replaced := r.backend, int64(0)
	if expected > 0 {
		if replaced, err = b.quota.replaced(ctx, key, value); err != nil {
			return resp, err
		}
	}
	if err := b.quota.admit(ctx, value, replaced); err != nil {
		return resp, err
	}
	resp, err = r.Interface.OptimisticPut(ctx, key, value, expected, opts)
	if err != nil {
		return resp, b.quota.explain(err, int64(len(value)))
	}
	if resp.Succeeded {
		b.replaced(resp.Revision, replaced, int64(len(value)))
	}
	return resp, nil
}

// OptimisticDelete implements etcdkubernetes.Interface.
func (r roomy) OptimisticDelete(
	ctx context.Context, key string, expected int64, opts etcdkubernetes.DeleteOptions,
) (resp etcdkubernetes.DeleteResponse, err error) {
	replaced, err := r.backend.quota.replaced(ctx, key, nil)
	if err != nil {
		return resp, err
	}
	resp, err = r.Interface.OptimisticDelete(ctx, key, expected, opts)
	if err == nil && resp.Succeeded {
		r.backend.replaced(resp.Revision, replaced, 0)
	}
	return resp, err
}

// roomyLease explains the error of an etcd that is full.
type roomyLease struct {
	clientv3.Lease
	quota *quota
}

func (l roomyLease) Grant(ctx context.Context, ttl int64) (*clientv3.LeaseGrantResponse, error) {
	resp, err := l.Lease.Grant(ctx, ttl)
	if err != nil {
		return resp, l.quota.explain(err, 0)
	}
	return resp, nil
}
