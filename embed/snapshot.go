package embed

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/server/v3/storage/datadir"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.etcd.io/etcd/server/v3/storage/wal"
)

// sectorSize divides the size of every database file, so the remainder of a snapshot's size is the
// size of its checksum.
const sectorSize = 512

// Snapshot writes the current data in etcd's snapshot format, which etcdutl can also read: the
// database followed by its SHA-256 checksum.
func (e *Etcd) Snapshot(ctx context.Context, w io.Writer) error {
	ctx, cancel := context.WithCancel(ctx) // ends the sender if w fails
	defer cancel()
	r, err := e.client.Snapshot(ctx)
	if err != nil {
		return fmt.Errorf("take snapshot: %w", err)
	}
	_, err = io.Copy(w, r)
	if err := errors.Join(err, r.Close()); err != nil {
		return fmt.Errorf("take snapshot: %w", err)
	}
	return nil
}

// Restore makes dir a data directory with the content of a snapshot. The snapshot may come from
// kinproc or from a real cluster (etcdctl snapshot save), or may be a plain copy of a database
// file. dir must not hold etcd data yet. Revisions and leases are kept, but membership is not.
func Restore(dir string, r io.Reader) error {
	receive := func(path string) error { return receive(path, r) }
	if err := restore(dir, receive); err != nil {
		return explain("restore into "+dir, err)
	}
	return nil
}

// restore makes dir a data directory with the database that write writes to a file.
func restore(dir string, write func(path string) error) (err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := checkTypes(dir); err != nil {
		return err
	}
	lock, err := lockDir(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.release()) }()
	database := datadir.ToBackendFileName(dir)
	if wal.Exist(datadir.ToWALDir(dir)) || fileutil.Exist(database) {
		return &Error{Op: "restore into " + dir, Err: ErrHasData, Hint: "use a new directory"}
	}
	if err := os.MkdirAll(filepath.Dir(database), 0o700); err != nil {
		return err
	}
	partial := database + ".part"
	defer os.Remove(partial)
	if err := write(partial); err != nil {
		return err
	}
	if err := forgetCluster(partial); err != nil {
		return err
	}
	if err := os.Rename(partial, database); err != nil {
		return err
	}
	return syncDir(filepath.Dir(database))
}

// receive stores a snapshot without its checksum after verifying it.
func receive(path string, r io.Reader) (err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, err := io.Copy(f, r)
	if err != nil {
		return err
	}
	switch size % sectorSize {
	case 0:
		return nil
	case sha256.Size:
	default:
		return fmt.Errorf("%w: a file of %d bytes is not a complete snapshot", ErrCorrupt, size)
	}
	size -= sha256.Size
	want := make([]byte, sha256.Size)
	if _, err := f.ReadAt(want, size); err != nil {
		return err
	}
	hash := sha256.New()
	if _, err := io.Copy(hash, io.NewSectionReader(f, 0, size)); err != nil {
		return err
	}
	if !bytes.Equal(hash.Sum(nil), want) {
		return fmt.Errorf("%w: the snapshot's checksum does not match", ErrCorrupt)
	}
	return f.Truncate(size)
}

// forgetCluster removes everything that ties a database to its original cluster and log.
func forgetCluster(path string) (err error) {
	if _, err := checkDatabase(path); err != nil && !errors.Is(err, ErrCluster) {
		return err
	}
	return forgetMembers(path, false)
}

func forgetMembers(path string, unsafeNoSync bool) (err error) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{
		NoSync: unsafeNoSync, NoGrowSync: unsafeNoSync, NoFreelistSync: true,
		FreelistType: bbolt.FreelistMapType,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return db.Update(func(tx *bbolt.Tx) error {
		for _, name := range [][]byte{
			schema.Members.Name(), schema.MembersRemoved.Name(), schema.Cluster.Name(),
		} {
			if err := tx.DeleteBucket(name); err != nil && !errors.Is(err, bolterrors.ErrBucketNotFound) {
				return err
			}
		}
		meta, err := tx.CreateBucketIfNotExists(schema.Meta.Name())
		if err != nil {
			return err
		}
		for _, key := range [][]byte{
			schema.MetaConsistentIndexKeyName, schema.MetaTermKeyName, schema.MetaConfStateName,
		} {
			if err := meta.Delete(key); err != nil {
				return err
			}
		}
		return nil
	})
}

// syncDir syncs a directory to make a rename in it durable. Windows can't sync directories and does
// not need to.
func syncDir(path string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(fileutil.Fsync(d), d.Close())
}
