package embed_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kinproc/kinproc/embed"
)

func start(t testing.TB, opts embed.Options) *embed.Etcd {
	t.Helper()
	if opts.Dir == "" {
		opts.Dir = t.TempDir()
	}
	// A start that hangs takes the time of go test, which then prints what it waits for.
	e, err := embed.Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, e) })
	return e
}

func stop(t testing.TB, e *embed.Etcd) {
	t.Helper()
	if err := e.Stop(context.Background()); err != nil {
		t.Errorf("stop: %v", err)
	}
}

func put(t testing.TB, e *embed.Etcd, key, value string) {
	t.Helper()
	if _, err := e.Client().Put(t.Context(), key, value); err != nil {
		t.Fatal(err)
	}
}

func get(t testing.TB, e *embed.Etcd, key string) string {
	t.Helper()
	r, err := e.Client().Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Kvs) == 0 {
		return ""
	}
	return string(r.Kvs[0].Value)
}

func TestReadsWritesAndWatches(t *testing.T) {
	t.Parallel()
	e := start(t, embed.Options{Ephemeral: true})
	events := e.Client().Watch(t.Context(), "/", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	if created := <-events; !created.Created {
		t.Fatalf("the watch did not start: %v", created.Err())
	}
	put(t, e, "/a", "1")
	if got := get(t, e, "/a"); got != "1" {
		t.Errorf("read %q, wrote 1", got)
	}
	if got := (<-events).Events[0]; string(got.Kv.Key) != "/a" {
		t.Errorf("watched %s", got.Kv)
	}
	if _, err := e.Client().Grant(t.Context(), 30); err != nil {
		t.Errorf("lease: %v", err)
	}
	if got := e.Endpoints(); got != nil {
		t.Errorf("listens on %v without ListenClient", got)
	}
}

func TestStopKeepsDataAndFreesTheDirectory(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "made", "by", "start")
	e := start(t, embed.Options{Dir: dir})
	put(t, e, "/kept", "yes")
	stop(t, e)
	stop(t, e)
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("data directory: %v %v, want mode 0700", info, err)
	}
	again := start(t, embed.Options{Dir: dir})
	if got := get(t, again, "/kept"); got != "yes" {
		t.Errorf("after a restart /kept is %q", got)
	}
}

func TestEphemeralLeavesNothing(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	e := start(t, embed.Options{Dir: parent, Ephemeral: true, ListenClient: true})
	put(t, e, "/a", "1")
	stop(t, e)
	left, err := os.ReadDir(parent)
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

func TestManyInOneProcess(t *testing.T) {
	t.Parallel()
	members := make([]*embed.Etcd, 4)
	for i := range members {
		members[i] = start(t, embed.Options{Ephemeral: true})
		put(t, members[i], "/mine", string(rune('a'+i)))
	}
	for i, e := range members {
		if got := get(t, e, "/mine"); got != string(rune('a'+i)) {
			t.Errorf("member %d reads %q", i, got)
		}
	}
}

func TestListen(t *testing.T) {
	t.Parallel()
	for name, dir := range map[string]string{
		"short path": t.TempDir(),
		"long path":  filepath.Join(t.TempDir(), strings.Repeat("long", 30)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := start(t, embed.Options{Dir: dir, ListenClient: true})
			socket := strings.TrimPrefix(e.Endpoints()[0], "unix://")
			if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("socket: %v %v, want mode 0600", info, err)
			}
			c, err := clientv3.New(clientv3.Config{Endpoints: e.Endpoints(), DialTimeout: 5 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			put(t, e, "/a", "1")
			r, err := c.Get(t.Context(), "/a")
			if err != nil || len(r.Kvs) != 1 {
				t.Errorf("read through %s: %v %v", socket, r, err)
			}
			stop(t, e)
			if _, err := os.Stat(socket); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the socket still exists: %v", err)
			}
		})
	}
}

func TestStopIsBoundedByItsContext(t *testing.T) {
	t.Parallel()
	e := start(t, embed.Options{Ephemeral: true})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.Stop(ctx); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("stop with a canceled context: %v", err)
	}
	stop(t, e)
}

func TestStartIsBoundedByItsContext(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if e, err := embed.Start(ctx, embed.Options{Dir: parent, Ephemeral: true}); !errors.Is(err,
		context.Canceled) {
		t.Errorf("started %v, %v", e, err)
	}
	left, err := os.ReadDir(parent)
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}
