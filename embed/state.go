package embed

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/server/v3/lease/leasepb"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"google.golang.org/protobuf/proto"
)

// Snapshot is the data of a member at one revision. It does not change, so several goroutines and
// members may use it.
type Snapshot struct {
	database []byte
	state    func() (*State, error)
}

// State is what the keys of a snapshot hold.
type State struct {
	// Entries are the keys with their values.
	Entries map[string]Entry
	// LeaseSeconds are the durations of the leases, by their ID.
	LeaseSeconds map[int64]int64
}

// Entry is the value of a key.
type Entry struct {
	Value []byte
	// Lease is the ID of the lease that the key is attached to, or 0.
	Lease int64
}

func newSnapshot(database []byte) *Snapshot {
	s := &Snapshot{database: database}
	s.state = sync.OnceValues(s.readState)
	return s
}

// TakeSnapshot returns the current data.
func (e *Etcd) TakeSnapshot(ctx context.Context) (*Snapshot, error) {
	var b bytes.Buffer
	if err := e.Snapshot(ctx, &b); err != nil {
		return nil, err
	}
	database, err := withoutChecksum(b.Bytes())
	if err != nil {
		return nil, fmt.Errorf("take snapshot: %w", err)
	}
	return newSnapshot(database), nil
}

// ReadSnapshot reads a snapshot in etcd's format, such as kinproc or etcdctl snapshot save writes,
// or a plain copy of a database file. It reads all of r and checks the data. The error wraps
// [ErrCorrupt] or [ErrNewerVersion] if the data cannot be used.
func ReadSnapshot(r io.Reader) (*Snapshot, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("read snapshot: %w", err)
	}
	database, err := withoutChecksum(data)
	if err != nil {
		return nil, fmt.Errorf("read snapshot: %w", err)
	}
	// A start forgets the members of a cluster, so it does not matter how many there are.
	var c contents
	if err := readPages(bytes.NewReader(database), int64(len(database)), c.check); err != nil {
		return nil, fmt.Errorf("read snapshot: %w", err)
	}
	return newSnapshot(database), nil
}

// withoutChecksum verifies and removes the checksum. A database file has none.
func withoutChecksum(data []byte) ([]byte, error) {
	switch len(data) % sectorSize {
	case 0:
		return data, nil
	case sha256.Size:
	default:
		return nil, fmt.Errorf("%w: a file of %d bytes is not a complete snapshot", ErrCorrupt, len(data))
	}
	database, want := data[:len(data)-sha256.Size], data[len(data)-sha256.Size:]
	if sum := sha256.Sum256(database); !bytes.Equal(sum[:], want) {
		return nil, fmt.Errorf("%w: the snapshot's checksum does not match", ErrCorrupt)
	}
	return database, nil
}

// Size returns the number of bytes that WriteTo writes.
func (s *Snapshot) Size() int64 { return int64(len(s.database)) + sha256.Size }

// WriteTo writes the snapshot in etcd's format, which [ReadSnapshot], [Restore] and etcdutl read.
func (s *Snapshot) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(s.database)
	if err != nil {
		return int64(n), err
	}
	sum := sha256.Sum256(s.database)
	m, err := w.Write(sum[:])
	return int64(n) + int64(m), err
}

// State returns the keys. The caller must not change them. The first call reads them all and keeps
// them, which takes memory once more.
func (s *Snapshot) State() (*State, error) { return s.state() }

func (s *Snapshot) readState() (*State, error) {
	state := &State{Entries: map[string]Entry{}, LeaseSeconds: map[int64]int64{}}
	err := readPages(bytes.NewReader(s.database), int64(len(s.database)), state.read)
	if err != nil {
		return nil, fmt.Errorf("read the keys of a snapshot: %w", err)
	}
	return state, nil
}

func (s *State) read(bucket string, key, value []byte) error {
	switch bucket {
	case string(schema.Key.Name()):
		return s.readRevision(key, value)
	case string(schema.Lease.Name()):
		var lease leasepb.Lease
		if err := proto.Unmarshal(value, &lease); err != nil || len(key) != 8 {
			return damaged("%x is not a lease", key)
		}
		s.LeaseSeconds[int64(binary.BigEndian.Uint64(key))] = lease.GetTTL()
	}
	return nil
}

// readRevision reads one change of a key. Changes are stored in the order of their revisions.
func (s *State) readRevision(at, value []byte) error {
	var kv mvccpb.KeyValue
	if err := proto.Unmarshal(value, &kv); err != nil {
		return fmt.Errorf("revision %x: %w", at, err)
	}
	if mvcc.IsTombstone(at) {
		delete(s.Entries, string(kv.GetKey()))
		return nil
	}
	s.Entries[string(kv.GetKey())] = Entry{kv.GetValue(), kv.GetLease()}
	return nil
}

// restoreFast writes the database into a new directory without waiting for the disk. The database
// has been checked when the snapshot was read.
func (s *Snapshot) restoreFast(database string) error {
	if err := os.MkdirAll(filepath.Dir(database), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(database, s.database, 0o600); err != nil {
		return err
	}
	return forgetMembers(database, true)
}

// At returns the data as it was at an earlier revision. The error wraps [mvcc.ErrCompacted] if etcd
// does not keep that revision any more, and [mvcc.ErrFutureRev] if there is none yet. Leases that
// were granted later stay, without keys.
func (s *Snapshot) At(revision int64) (earlier *Snapshot, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("the snapshot at revision %d: %w", revision, err)
		}
	}()
	dir, remove, err := TempDir("")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	database := filepath.Join(dir, "db")
	if err := os.WriteFile(database, s.database, 0o600); err != nil {
		return nil, err
	}
	if err := undo(database, revision); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(database)
	if err != nil {
		return nil, err
	}
	return newSnapshot(data), nil
}

// undo removes the changes after a revision from a database.
func undo(database string, revision int64) error {
	return update(database, true, func(tx *bbolt.Tx) error {
		changes, meta := tx.Bucket(schema.Key.Name()), tx.Bucket(schema.Meta.Name())
		if changes == nil || meta == nil {
			return damaged("there are no keys")
		}
		oldest := int64(1)
		if compacted := meta.Get(schema.ScheduledCompactKeyName); compacted != nil {
			oldest = mvcc.BytesToRev(compacted).Main
		}
		newest := oldest
		if last, _ := changes.Cursor().Last(); last != nil {
			newest = max(newest, mvcc.BytesToBucketKey(last).Main)
		}
		switch {
		case revision < oldest:
			return fmt.Errorf("%w: the oldest one is %d", mvcc.ErrCompacted, oldest)
		case revision > newest:
			return fmt.Errorf("%w: the newest one is %d", mvcc.ErrFutureRev, newest)
		}
		var later [][]byte
		from := mvcc.RevToBytes(mvcc.Revision{Main: revision + 1}, mvcc.NewRevBytes())
		c := changes.Cursor()
		for at, _ := c.Seek(from); at != nil; at, _ = c.Next() {
			later = append(later, bytes.Clone(at))
		}
		for _, at := range later {
			if err := changes.Delete(at); err != nil {
				return err
			}
		}
		return nil
	})
}
