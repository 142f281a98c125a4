package embed

import (
	"context"
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
	s, err := ReadSnapshot(r)
	if err == nil {
		err = s.restore(dir)
	}
	if err != nil {
		return explain("restore into "+dir, err)
	}
	return nil
}

// restore makes dir a data directory with the database.
func (s *Snapshot) restore(dir string) (err error) {
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
	if err := os.WriteFile(partial, s.database, 0o600); err != nil {
		return err
	}
	if err := forgetMembers(partial, false); err != nil {
		return err
	}
	if err := os.Rename(partial, database); err != nil {
		return err
	}
	return syncDir(filepath.Dir(database))
}

// forgetMembers removes everything that ties a database to its original cluster and log.
func forgetMembers(path string, unsafeNoSync bool) error {
	return update(path, unsafeNoSync, func(tx *bbolt.Tx) error {
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

// update changes a database that no member uses.
func update(path string, unsafeNoSync bool, change func(*bbolt.Tx) error) (err error) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{
		NoSync: unsafeNoSync, NoGrowSync: unsafeNoSync, NoFreelistSync: true,
		FreelistType: bbolt.FreelistMapType,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return db.Update(change)
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
