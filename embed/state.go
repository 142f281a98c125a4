package embed

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

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
