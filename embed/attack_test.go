package embed_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/kinproc/kinproc/embed"
)

// withFreelist returns a database that stores the list of its free pages, of which there are
// several. etcd's do not store it.
func withFreelist(t testing.TB) []byte {
	t.Helper()
	path := database(written(t))
	db, err := bbolt.Open(path, 0o600, nil)
	must(t, err)
	name := []byte("deleted")
	must(t, db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucket(name)
		if err != nil {
			return err
		}
		return b.Put(name, make([]byte, 8*pageSize))
	}))
	must(t, db.Update(func(tx *bbolt.Tx) error { return tx.DeleteBucket(name) }))
	must(t, db.Update(func(*bbolt.Tx) error { return nil })) // from now on, the pages are free
	must(t, db.Close())
	data, err := os.ReadFile(path)
	must(t, err)
	return data
}

// patch overwrites bytes of a database and mends the checksums of the meta pages.
func patch(database []byte, offset int64, value []byte) []byte {
	patched := bytes.Clone(database)
	copy(patched[min(offset, int64(len(patched))):], value)
	for page := range 2 {
		meta := patched[page*pageSize+16:]
		sum := fnv.New64a()
		sum.Write(meta[:56])
		binary.NativeEndian.PutUint64(meta[56:], sum.Sum64())
	}
	return patched
}

// inMetas overwrites a field of both meta pages.
func inMetas(database []byte, offset int64, value []byte) []byte {
	return patch(patch(database, 16+offset, value), pageSize+16+offset, value)
}

func uint16s(n uint16) []byte { return binary.NativeEndian.AppendUint16(nil, n) }
func uint32s(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }
func uint64s(n uint64) []byte { return binary.NativeEndian.AppendUint64(nil, n) }

// number returns a field of the newer meta page.
func number(database []byte, offset int) uint64 {
	metas := [2][]byte{database[16:], database[pageSize+16:]}
	newer := metas[0]
	if binary.NativeEndian.Uint64(metas[1][48:]) > binary.NativeEndian.Uint64(newer[48:]) {
		newer = metas[1]
	}
	return binary.NativeEndian.Uint64(newer[offset:])
}

// damagedDatabases are files with valid checksums and a wrong number.
func damagedDatabases(t testing.TB) map[string][]byte {
	whole := withFreelist(t)
	root, freelist := int64(number(whole, 16))*pageSize, int64(number(whole, 32))*pageSize
	long := append(uint16s(math.MaxUint16), 0, 0, 0, 0)
	return map[string][]byte{
		"a freelist that is not there":    inMetas(whole, 32, uint64s(9999999)),
		"a freelist on a meta page":       inMetas(whole, 32, uint64s(1)),
		"a freelist on the root":          inMetas(whole, 32, uint64s(number(whole, 16))),
		"a freelist at the last number":   inMetas(whole, 32, uint64s(math.MaxUint64-1)),
		"a freelist of any length":        patch(whole, freelist+10, append(long, uint64s(1<<60)...)),
		"a freelist of negative length":   patch(whole, freelist+10, append(long, uint64s(1<<63)...)),
		"a freelist that is too long":     patch(whole, freelist+10, uint16s(60000)),
		"a freelist without end":          patch(whole, freelist+12, uint32s(math.MaxUint32)),
		"a freelist with a used page":     patch(whole, freelist+16, uint64s(number(whole, 16))),
		"a freelist with a page twice":    patch(whole, freelist+24, whole[freelist+16:freelist+24]),
		"a freelist of pages beyond":      patch(whole, freelist+16, uint64s(1<<40)),
		"pages of no size":                inMetas(whole, 8, uint32s(0)),
		"pages of an odd size":            inMetas(whole, 8, uint32s(3)),
		"pages larger than the file":      inMetas(whole, 8, uint32s(1<<31)),
		"pages of the largest size":       inMetas(whole, 8, uint32s(math.MaxUint32)),
		"a root that is not there":        inMetas(whole, 16, uint64s(9999999)),
		"a root at no page":               inMetas(whole, 16, uint64s(0)),
		"a size of no pages":              inMetas(whole, 40, uint64s(0)),
		"a size that overflows to none":   inMetas(whole, 40, uint64s(1<<52)),
		"a size that overflows to enough": inMetas(whole, 40, uint64s(1<<52+number(whole, 40))),
		"a size that is negative":         inMetas(whole, 40, uint64s(1<<63)),
		"the largest size":                inMetas(whole, 40, uint64s(math.MaxUint64)),
		"the last transaction":            inMetas(whole, 48, uint64s(math.MaxUint64)),
		"a root of too many elements":     patch(whole, root+10, uint16s(math.MaxUint16)),
		"a root without end":              patch(whole, root+12, uint32s(math.MaxUint32)),
		"a key beyond its page":           patch(whole, root+20, uint32s(math.MaxUint32)),
		"a key of any size":               patch(whole, root+24, uint32s(math.MaxUint32)),
		"a value of any size":             patch(whole, root+28, uint32s(math.MaxUint32)),
		"a key without length":            patch(whole, root+24, uint32s(0)),
	}
}

// Neither a snapshot nor a directory with a wrong number ends the process: both are refused.
func TestAttackDamagedDatabases(t *testing.T) {
	t.Parallel()
	if _, err := embed.ReadSnapshot(bytes.NewReader(withFreelist(t))); err != nil {
		t.Fatal(err)
	}
	for name, data := range damagedDatabases(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := embed.ReadSnapshot(bytes.NewReader(data)); !errors.Is(err, embed.ErrCorrupt) {
				t.Errorf("the snapshot: %v, want %v", err, embed.ErrCorrupt)
			}
			dir := t.TempDir()
			must(t, os.MkdirAll(filepath.Dir(database(dir)), 0o700))
			must(t, os.WriteFile(database(dir), data, 0o600))
			e, err := embed.Start(t.Context(), embed.Options{Dir: dir})
			if err == nil {
				stop(t, e)
			}
			wantError(t, err, embed.ErrCorrupt)
		})
	}
}

// Whatever a snapshot contains, it is refused, or etcd can start with it or says why not.
func FuzzDatabase(f *testing.F) {
	whole := withFreelist(f)
	f.Add(int64(0), []byte(nil))
	for _, data := range damagedDatabases(f) {
		at := int64(0)
		for at < int64(len(whole)) && whole[at] == data[at] {
			at++
		}
		f.Add(at, bytes.Clone(data[at:min(at+16, int64(len(data)))]))
	}
	f.Fuzz(func(t *testing.T, offset int64, value []byte) {
		if offset < 0 || offset >= int64(len(whole)) {
			return
		}
		s, err := embed.ReadSnapshot(bytes.NewReader(patch(whole, offset, value)))
		if err != nil {
			if !errors.Is(err, embed.ErrCorrupt) && !errors.Is(err, embed.ErrNewerVersion) {
				t.Error(err)
			}
			return
		}
		if _, err := s.State(); err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		e, err := embed.Start(ctx, embed.Options{Dir: t.TempDir(), Ephemeral: true, From: s})
		if err != nil {
			if ctx.Err() != nil {
				t.Errorf("the start hung: %v", err)
			}
			return
		}
		_, err = e.Client().Put(ctx, "/after", "it")
		if err := errors.Join(err, e.Stop(ctx)); err != nil {
			t.Error(err)
		}
	})
}

// Reading a snapshot puts no copy into the directory for temporary files, where a process that is
// killed would leave it.
func TestAttackCopiesOfSnapshots(t *testing.T) {
	data := withFreelist(t)
	for _, name := range []string{"TMPDIR", "TMP", "TEMP"} {
		t.Setenv(name, filepath.Join(t.TempDir(), "missing"))
	}
	s, err := embed.ReadSnapshot(bytes.NewReader(data))
	must(t, err)
	state, err := s.State()
	must(t, err)
	if got := string(state.Entries[numberedKey(299)].Value); len(got) != 200 {
		t.Errorf("the last key has the value %q", got)
	}
}
