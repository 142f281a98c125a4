package embed_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/storage/mvcc"

	"github.com/kinproc/kinproc/embed"
)

func snapshot(t *testing.T, e *embed.Etcd) []byte {
	t.Helper()
	var b bytes.Buffer
	must(t, e.Snapshot(t.Context(), &b))
	return b.Bytes()
}

func TestSnapshotAndRestore(t *testing.T) {
	t.Parallel()
	e := start(t, embed.Options{Ephemeral: true})
	lease, err := e.Client().Grant(t.Context(), 3600)
	must(t, err)
	_, err = e.Client().Put(t.Context(), "/leased", "1", clientv3.WithLease(lease.ID))
	must(t, err)
	put(t, e, "/a", "1")
	put(t, e, "/a", "2")
	before, err := e.Client().Get(t.Context(), "/a")
	must(t, err)
	data := snapshot(t, e)
	put(t, e, "/a", "3")

	dir := filepath.Join(t.TempDir(), "restored")
	must(t, embed.Restore(dir, bytes.NewReader(data)))
	restored := start(t, embed.Options{Dir: dir})
	after, err := restored.Client().Get(t.Context(), "/a")
	must(t, err)
	if kv := after.Kvs[0]; string(kv.Value) != "2" || kv.ModRevision != before.Kvs[0].ModRevision ||
		kv.Version != 2 {
		t.Errorf("restored %v, want %v", kv, before.Kvs[0])
	}
	put(t, restored, "/b", "new")
	if ttl, err := restored.Client().TimeToLive(t.Context(), lease.ID,
		clientv3.WithAttachedKeys()); err != nil || len(ttl.Keys) != 1 {
		t.Errorf("lease after the restore: %v %v", ttl, err)
	}
	stop(t, restored)
	again := start(t, embed.Options{Dir: dir})
	if a, b := get(t, again, "/a"), get(t, again, "/b"); a != "2" || b != "new" {
		t.Errorf("after a restart: /a is %q, /b %q", a, b)
	}
}

func TestRestoreTakesADatabaseFile(t *testing.T) {
	t.Parallel()
	from := written(t)
	raw, err := os.ReadFile(database(from))
	must(t, err)
	dir := t.TempDir()
	must(t, embed.Restore(dir, bytes.NewReader(raw)))
	e := start(t, embed.Options{Dir: dir})
	if got := get(t, e, numberedKey(299)); len(got) != 200 {
		t.Errorf("restored %q", got)
	}
}

func TestRestoreRefuses(t *testing.T) {
	t.Parallel()
	e := start(t, embed.Options{Ephemeral: true})
	put(t, e, "/a", "1")
	whole := snapshot(t, e)
	flipped := bytes.Clone(whole)
	flipped[3*pageSize] ^= 1
	for name, data := range map[string][]byte{
		"nothing":         nil,
		"a text":          []byte("hello"),
		"a cut snapshot":  whole[:len(whole)-100],
		"a wrong hash":    flipped,
		"an empty file":   make([]byte, 2*pageSize),
		"half a database": whole[:len(whole)/pageSize/2*pageSize],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			wantError(t, embed.Restore(dir, bytes.NewReader(data)), embed.ErrCorrupt)
			start(t, embed.Options{Dir: dir}) // the failed restore left nothing behind
		})
	}
	dir := written(t)
	if err := embed.Restore(dir, bytes.NewReader(whole)); err == nil {
		t.Error("restored into a directory with data")
	}
}

type brokenWriter struct{ err error }

func (w brokenWriter) Write([]byte) (int, error) { return 0, w.err }

func TestSnapshotReportsTheWriter(t *testing.T) {
	t.Parallel()
	e := start(t, embed.Options{Ephemeral: true})
	if err := e.Snapshot(t.Context(), brokenWriter{io.ErrShortWrite}); !errors.Is(err,
		io.ErrShortWrite) {
		t.Errorf("got %v", err)
	}
}

func TestSnapshotAt(t *testing.T) {
	t.Parallel()
	e := start(t, embed.Options{Ephemeral: true})
	put(t, e, "/a", "1")
	put(t, e, "/b", "1")
	gone, err := e.Client().Delete(t.Context(), "/a")
	must(t, err)
	put(t, e, "/b", "2")
	last, err := e.Client().Put(t.Context(), "/c", "3")
	must(t, err)
	first := gone.Header.Revision - 2 // of /a
	for _, compact := range []bool{false, true} {
		if compact {
			_, err := e.Client().Compact(t.Context(), first+1, clientv3.WithCompactPhysical())
			must(t, err)
		}
		all, err := e.TakeSnapshot(t.Context())
		must(t, err)
		for revision, want := range map[int64]string{
			first:                "/a=1",
			first + 1:            "/a=1 /b=1",
			first + 2:            "/b=1",
			first + 3:            "/b=2",
			last.Header.Revision: "/b=2 /c=3",
		} {
			s, err := all.At(revision)
			if compact && revision == first {
				if !errors.Is(err, mvcc.ErrCompacted) {
					t.Errorf("revision %d, which is compacted: %v", revision, err)
				}
				continue
			}
			must(t, err)
			var data bytes.Buffer
			_, err = s.WriteTo(&data)
			must(t, err)
			dir := t.TempDir()
			must(t, embed.Restore(dir, &data))
			restored := start(t, embed.Options{Dir: dir})
			got, err := restored.Client().Get(t.Context(), "/", clientv3.WithPrefix())
			must(t, err)
			var found []string
			for _, kv := range got.Kvs {
				found = append(found, string(kv.Key)+"="+string(kv.Value))
			}
			if got := strings.Join(found, " "); got != want {
				t.Errorf("revision %d: %s, want %s", revision, got, want)
			}
			if got.Header.Revision != revision {
				t.Errorf("the member is at revision %d, want %d", got.Header.Revision, revision)
			}
			stop(t, restored)
		}
		if _, err := all.At(last.Header.Revision + 1); !errors.Is(err, mvcc.ErrFutureRev) {
			t.Errorf("the next revision: %v", err)
		}
	}
}
