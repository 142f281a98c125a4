package embed_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/kinproc/kinproc/embed"
)

// fill replaces one key until etcd refuses to write.
func fill(t *testing.T, e *embed.Etcd) {
	t.Helper()
	var err error
	for err == nil {
		_, err = e.Client().Put(t.Context(), "key", strings.Repeat("x", 1<<20))
	}
	if !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Fatal(err)
	}
}

// Etcd refuses every write when its database is full, and goes on when old revisions are removed.
func TestFullDatabase(t *testing.T) {
	t.Parallel()
	for _, ephemeral := range []bool{false, true} {
		e := start(t, embed.Options{Ephemeral: ephemeral, QuotaBytes: embed.MinQuotaBytes})
		fill(t, e)
		if r := e.Room(); !r.Full() || r.Used > r.File || r.File > r.Limit+embed.MinQuotaBytes {
			t.Errorf("ephemeral %t: full with %+v", ephemeral, r)
		}
		if _, err := e.Client().Delete(t.Context(), "other"); err != nil {
			t.Errorf("ephemeral %t: delete: %v", ephemeral, err)
		}
		oldest, err := e.MakeRoom(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if r := e.Room(); r.File > r.Quota/2 {
			t.Errorf("ephemeral %t: the file does not shrink: %+v", ephemeral, r)
		}
		put(t, e, "other", "value")
		if got := get(t, e, "key"); len(got) != 1<<20 {
			t.Errorf("ephemeral %t: the key has %d bytes", ephemeral, len(got))
		}
		if again, err := e.MakeRoom(t.Context()); err != nil || again <= oldest {
			t.Errorf("ephemeral %t: once more: revision %d after %d, %v", ephemeral, again, oldest, err)
		}
	}
}

// A full database can be opened, also with a quota that is smaller than its file.
func TestStartWithFullDatabase(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	e := start(t, embed.Options{Dir: dir, QuotaBytes: 2 * embed.MinQuotaBytes})
	fill(t, e)
	for _, quota := range []int64{2 * embed.MinQuotaBytes, embed.MinQuotaBytes} {
		if err := e.Stop(context.Background()); err != nil {
			t.Fatal(err)
		}
		e = start(t, embed.Options{Dir: dir, QuotaBytes: quota})
		if !e.Room().Full() {
			t.Errorf("not full any more: %+v", e.Room())
		}
	}
	if _, err := e.MakeRoom(t.Context()); err != nil {
		t.Fatal(err)
	}
	put(t, e, "key", "value")
}

// Reads and writes go on while room is made.
func TestMakeRoomMeanwhile(t *testing.T) {
	t.Parallel()
	for _, ephemeral := range []bool{false, true} {
		e := start(t, embed.Options{Ephemeral: ephemeral})
		stopped, written := make(chan struct{}), make(chan int)
		go func() {
			n := 0
			defer func() { written <- n }()
			for ; ; n++ {
				select {
				case <-stopped:
					return
				default:
				}
				if _, err := e.Client().Put(t.Context(), "key", strings.Repeat("x", n+1)); err != nil {
					t.Error(err)
					return
				}
				if r, err := e.Client().Get(t.Context(), "key"); err != nil || len(r.Kvs) != 1 {
					t.Errorf("read %d: %v", n, err)
					return
				}
			}
		}()
		for range 5 {
			if _, err := e.MakeRoom(t.Context()); err != nil {
				t.Error(err)
			}
			if err := e.Shrink(t.Context()); err != nil {
				t.Error(err)
			}
		}
		close(stopped)
		if n := <-written; n > 0 && len(get(t, e, "key")) != n {
			t.Errorf("ephemeral %t: of %d writes, %d are there", ephemeral, n, len(get(t, e, "key")))
		}
	}
}

func TestQuotaOfAnyNumber(t *testing.T) {
	t.Parallel()
	for _, quota := range []int64{-1, 1, embed.MinQuotaBytes - 1, embed.MaxQuotaBytes + 1, 1<<63 - 1} {
		_, err := embed.Start(t.Context(), embed.Options{Ephemeral: true, QuotaBytes: quota})
		if err == nil || !strings.Contains(err.Error(), "QuotaBytes") {
			t.Errorf("quota %d: %v", quota, err)
		}
	}
}
