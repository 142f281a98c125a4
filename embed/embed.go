package embed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/verify"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/datadir"
	"go.etcd.io/raft/v3/raftpb"
)

// abandonAfter is how long etcd may take to stop after a fault, or to return after its caller's
// context has ended.
const abandonAfter = time.Second

// replayGrace is how many times the member waits for electionRetry between applying the log's
// entries and requesting an election. etcd compacts its copy of the log as soon as it has applied
// enough entries, and raft learns of that a moment later. An election that is requested in between
// makes raft panic because it misses those entries. Waits are counted, because on a busy machine
// any time may pass while raft gets no turn.
const replayGrace = 20

// electionRetry is how long the member waits between requests to itself to become the leader.
// Applying its own admission to the cluster takes about as long.
const electionRetry = 500 * time.Microsecond

// Etcd is a running member.
type Etcd struct {
	dir      string
	lockInfo os.FileInfo // of the lock file, unless the member is ephemeral
	server   *etcdserver.EtcdServer
	writer   *storeWriter // nil if all changes go through the log
	client   *clientv3.Client
	listener *listener
	faults   *faults
	failed   chan struct{}

	quota, limit int64 // of the database, in bytes

	mu  sync.Mutex
	err error // why failed was closed; guarded by mu

	// undo holds the functions that undo the steps of the start, in the order of the steps.
	undo []func() error

	stopOnce sync.Once
	stopped  chan struct{}
	stopErr  error // valid once stopped is closed
}

// Start starts a member and waits until it is ready. ctx applies to the start only: it does not
// stop the running member.
func Start(ctx context.Context, opts Options) (*Etcd, error) {
	if err := opts.validate(); err != nil {
		return nil, err
	}
	e := &Etcd{faults: newFaults(), failed: make(chan struct{}), stopped: make(chan struct{})}
	if err := e.start(ctx, opts); err != nil {
		return nil, errors.Join(err, e.unwind())
	}
	return e, nil
}

func (e *Etcd) start(ctx context.Context, opts Options) error {
	setSegmentSize()
	if err := e.openDir(opts); err != nil {
		return err
	}
	lg := e.faults.logger(opts.Logger)
	if opts.From != nil && opts.Ephemeral {
		if err := opts.From.restoreFast(datadir.ToBackendFileName(e.dir)); err != nil {
			return explain("restore into "+e.dir, err)
		}
	}
	var committed uint64
	if !opts.Ephemeral {
		err := e.faults.call(ctx,
			func() (err error) { committed, err = check(e.dir, lg); return err }, func() {})
		if err != nil {
			return explain("open "+e.dir, err)
		}
	}
	e.quota = cmp.Or(opts.QuotaBytes, DefaultQuotaBytes)
	e.limit = limit(e.quota, e.dir)
	config := serverConfig(e.dir, opts.Ephemeral, lg)
	config.QuotaBackendBytes = e.limit
	var server *etcdserver.EtcdServer
	err := e.faults.call(ctx, func() (err error) {
		server, err = etcdserver.NewServer(config)
		return err
	}, func() { server.Cleanup() })
	if err != nil {
		return explain("start etcd in "+e.dir, err)
	}
	e.server = server
	e.server.Cfg.MaxRequestBytes = maxChangeBytes // the client enforces maxRequestBytes
	stopping := e.server.StoppingNotify           // returns nil until the start has made the channel
	e.faults.stopping.Store(&stopping)
	e.server.Start()
	e.undo = append(e.undo, e.stopServer)
	if err := e.elect(ctx, committed); err != nil {
		return explain("start etcd in "+e.dir, err)
	}
	// The changes of other processes do not exclude those in the store, and etcd's own verification
	// rejects changes that are not in the log.
	if opts.Ephemeral && !opts.ListenClient &&
		!verify.IsVerificationEnabled(backend.EnvVerifyValueLock) {
		e.writer = newStoreWriter(e.server)
	}
	e.client = newClient(e.server, e.writer, e.faults)
	e.undo = append(e.undo, e.closeClient)
	if opts.ListenClient {
		var err error
		if e.listener, err = listen(e.dir, e.server); err != nil {
			return explain("listen in "+e.dir, err)
		}
		e.undo = append(e.undo, e.listener.close)
	}
	if !opts.Ephemeral {
		e.watchFiles()
	}
	e.watchFaults(opts.OnFailure)
	return nil
}

// elect makes the member its own leader without waiting for an election timeout, and waits until it
// is ready. It uses the message that a raft leader sends to its successor (MsgTimeoutNow). The
// member ignores the message until it has applied its own admission to the cluster, so elect
// repeats it. The message must not be sent before raft knows that the log's committed entries were
// applied.
func (e *Etcd) elect(ctx context.Context, committed uint64) error {
	self := uint64(e.server.MemberID())
	retry := time.NewTicker(electionRetry)
	defer retry.Stop()
	waits := 0
	for {
		select {
		case <-e.server.ReadyNotify():
			return nil
		case <-e.faults.any:
			return e.faults.err
		case <-e.server.StopNotify():
			return errors.New("etcd stopped unexpectedly")
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-retry.C:
		}
		if e.server.Leader() != 0 || e.server.AppliedIndex() < committed {
			continue
		}
		if waits++; committed > 0 && waits < replayGrace {
			continue
		}
		if err := e.server.Process(ctx, &raftpb.Message{
			Type: raftpb.MsgTimeoutNow.Enum(),
			From: &self,
			To:   &self,
		}); err != nil {
			return err
		}
	}
}

func (e *Etcd) openDir(opts Options) error {
	if opts.Ephemeral {
		dir, remove, err := TempDir(opts.Dir)
		if err != nil {
			return err
		}
		e.dir = dir
		e.undo = append(e.undo, remove)
		return nil
	}
	dir, err := filepath.Abs(opts.Dir)
	if err != nil {
		return explain("open "+opts.Dir, err)
	}
	e.dir = dir
	if opts.From != nil {
		if err := opts.From.restore(dir); err != nil {
			return explain("restore into "+dir, err)
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return explain("create "+dir, err)
	}
	if err := checkTypes(dir); err != nil {
		return explain("open "+dir, err)
	}
	if err := checkOwn(dir); err != nil {
		return explain("open "+dir, err)
	}
	lock, err := lockDir(dir)
	if err != nil {
		return explain("lock "+dir, err)
	}
	e.undo = append(e.undo, lock.release)
	if e.lockInfo, err = lock.file.Stat(); err != nil {
		return explain("lock "+dir, err)
	}
	e.faults.missing = e.missingFile
	endSweep := startSweep(os.TempDir())
	e.undo = append(e.undo, func() error { endSweep(); return nil })
	return nil
}

// stopServer stops the member and waits for it. After a fault, the member may wait forever for one
// of its goroutines, so stopServer then abandons it.
func (e *Etcd) stopServer() error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if e.writer != nil {
			e.writer.end(e.faults)
		}
		e.server.Stop()
	}()
	select {
	case <-done:
		return nil
	case <-e.faults.any:
	}
	abandon := time.NewTimer(abandonAfter)
	defer abandon.Stop()
	select {
	case <-done:
		return nil
	case <-abandon.C:
		return errors.New("etcd did not stop after a fault: its files stay open until the process exits")
	}
}

// closeClient closes the client. It ignores the context.Canceled that a client without a connection
// always returns.
func (e *Etcd) closeClient() error {
	if err := e.client.Close(); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("close etcd client: %w", err)
	}
	return nil
}

// watchFaults closes failed, and calls onFailure unless it is nil, when etcd dies after the start.
func (e *Etcd) watchFaults(onFailure func(error)) {
	ended, wait := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(wait)
		select {
		case <-e.faults.any:
		case <-e.server.StopNotify():
			e.faults.report(errors.New("etcd stopped unexpectedly"))
		case <-ended:
			return
		}
		e.mu.Lock()
		e.err = explain("run etcd in "+e.dir, e.faults.err)
		e.mu.Unlock()
		close(e.failed)
		// End all watches, since etcd may be unable to do so. The error only says that they were
		// canceled.
		_ = e.client.Watcher.Close()
		if onFailure != nil {
			onFailure(e.Err())
		}
	}()
	e.undo = append(e.undo, func() error { close(ended); <-wait; return nil })
}

// Client returns the client that all users in the process share. It calls the member directly,
// without a socket. Stop closes it.
func (e *Etcd) Client() *clientv3.Client { return e.client }

// Endpoints returns the endpoints for clients in other processes, or nil unless
// [Options.ListenClient] was set.
func (e *Etcd) Endpoints() []string {
	if e.listener == nil {
		return nil
	}
	return []string{e.listener.endpoint()}
}

// Dir returns the data directory.
func (e *Etcd) Dir() string { return e.dir }

// Failed returns a channel that is closed when the member dies on its own, for instance because the
// disk is full. Err then returns the reason.
func (e *Etcd) Failed() <-chan struct{} { return e.failed }

// Err returns the reason why the member died, or nil if it did not.
func (e *Etcd) Err() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.err
}

// Stop stops the member and waits until everything that it started has ended. Later calls wait for
// the first. If ctx ends before that, Stop returns the cause and the stop continues in the
// background.
func (e *Etcd) Stop(ctx context.Context) error {
	e.stopOnce.Do(func() {
		go func() {
			defer close(e.stopped)
			e.stopErr = e.unwind()
		}()
	})
	select {
	case <-e.stopped:
		return e.stopErr
	case <-ctx.Done():
		return fmt.Errorf("stop etcd: %w", context.Cause(ctx))
	}
}

func (e *Etcd) unwind() error {
	var errs []error
	for i := len(e.undo) - 1; i >= 0; i-- {
		errs = append(errs, e.undo[i]())
	}
	e.undo = nil
	return errors.Join(errs...)
}
