package embed

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/coreos/go-semver/semver"
	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/version"
	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/server/v3/lease/leasepb"
	"go.etcd.io/etcd/server/v3/storage/datadir"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
)

// databaseLockWait is how long to wait for another process that has the database file locked. etcd
// itself would wait forever.
const databaseLockWait = 100 * time.Millisecond

// check finds problems that would make etcd exit or crash the process when it opens the directory,
// since etcd trusts its files. It reads the whole database and the whole log, and returns the index
// of the last committed log entry.
func check(dir string, lg *zap.Logger) (committed uint64, err error) {
	walDir, database := datadir.ToWALDir(dir), datadir.ToBackendFileName(dir)
	for _, d := range []string{datadir.ToMemberDir(dir), datadir.ToSnapDir(dir), walDir} {
		if info, err := os.Stat(d); err == nil && !info.IsDir() {
			return 0, fmt.Errorf("%w: %s is not a directory", ErrCorrupt, d)
		} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, err
		} else if err == nil {
			if err := fileutil.IsDirWriteable(d); err != nil {
				return 0, err
			}
		}
	}
	if err := fileutil.IsDirWriteable(dir); err != nil {
		return 0, err
	}
	hasLog, hasDatabase := wal.Exist(walDir), fileutil.Exist(database)
	switch {
	case hasLog && !hasDatabase:
		return 0, fmt.Errorf("%w: the log exists, but the database %s does not", ErrCorrupt, database)
	case !hasLog && hasFiles(walDir):
		return 0, fmt.Errorf("%w: %s does not contain an etcd log", ErrCorrupt, walDir)
	}
	if !hasDatabase {
		return 0, nil
	}
	applied, err := checkDatabase(database)
	if err != nil {
		return 0, err
	}
	logged := uint64(0)
	if hasLog {
		if logged, committed, err = checkLog(walDir, lg); err != nil {
			return 0, err
		}
	}
	// etcd would mistake new entries for applied ones and drop them.
	if logged < applied {
		return 0, fmt.Errorf("%w: the log ends at entry %d, but the database is at entry %d",
			ErrCorrupt, logged, applied)
	}
	// A process was killed before it wrote the first entry. etcd would wait forever for a cluster
	// to join.
	if hasLog && logged == 0 {
		return 0, os.RemoveAll(walDir)
	}
	return committed, nil
}

// checkTypes rejects files that would lead etcd out of the directory or block it: links, named
// pipes and devices.
func checkTypes(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // another process is using the directory, as its lock will show
		}
		if err != nil || path == dir {
			return err
		}
		switch d.Type() {
		case 0, fs.ModeDir, fs.ModeSocket:
			return nil
		default:
			return fmt.Errorf("%w: %s is %s, not a file", ErrCorrupt, path, typeName(d.Type()))
		}
	})
}

func typeName(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeSymlink != 0:
		return "a symbolic link"
	case mode&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case mode&fs.ModeDevice != 0:
		return "a device"
	default:
		return "a special file"
	}
}

// checkOwn rejects a directory that is not empty but has no etcd data.
func checkOwn(dir string) error {
	if fileutil.Exist(datadir.ToMemberDir(dir)) {
		return nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		// These files are left by a process that was killed early, by a check of the directory, or
		// by a killed listener.
		if name := e.Name(); name != lockName && name != ".touch" && name != socketName {
			return fmt.Errorf("%w: %s", ErrForeign, name)
		}
	}
	return nil
}

func hasFiles(dir string) bool {
	entries, err := os.ReadDir(dir)
	return err == nil && len(entries) > 0
}

// checkDatabase reads the whole database and returns the index of the last log entry that was
// applied to it.
func checkDatabase(path string) (applied uint64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	// bbolt must not map a file whose meta pages are damaged.
	if _, err := openPages(f, info.Size()); err != nil {
		return 0, err
	}
	lock, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: databaseLockWait})
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return 0, fmt.Errorf("%w by another process that has %s open", ErrLocked, filepath.Base(path))
	case errors.Is(err, fs.ErrPermission):
		return 0, err
	case err != nil:
		return 0, fmt.Errorf("%w: %s: %w", ErrCorrupt, filepath.Base(path), err)
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	var c contents
	if err := readPages(f, info.Size(), c.check); err != nil {
		return 0, err
	}
	if c.members > 1 {
		return 0, fmt.Errorf("%w: %d", ErrCluster, c.members)
	}
	return c.applied, nil
}

// maxRevision leaves room for the revisions of new changes.
const maxRevision = math.MaxInt64 / 2

// contents is what a start must know about a database.
type contents struct {
	applied uint64
	members int
}

// check verifies one entry of a database. etcd panics if it meets some of what check rejects.
func (c *contents) check(bucket string, key, value []byte) error {
	switch bucket {
	case string(schema.Key.Name()):
		if err := checkRevision(key); err != nil {
			return err
		}
		var kv mvccpb.KeyValue
		if err := proto.Unmarshal(value, &kv); err != nil {
			return damaged("revision %x: %v", key, err)
		}
	case string(schema.Lease.Name()):
		var lease leasepb.Lease
		if err := proto.Unmarshal(value, &lease); err != nil || len(key) != 8 {
			return damaged("%x is not a lease", key)
		}
	case string(schema.Members.Name()):
		c.members++
	case string(schema.Cluster.Name()):
		if bytes.Equal(key, schema.ClusterClusterVersionKeyName) {
			return checkVersion(value)
		}
	case string(schema.Meta.Name()):
		return c.checkMeta(key, value)
	}
	return nil
}

func (c *contents) checkMeta(key, value []byte) error {
	switch string(key) {
	case string(schema.MetaConsistentIndexKeyName):
		if len(value) != 8 {
			return damaged("%x is not the index of a log entry", value)
		}
		c.applied = binary.BigEndian.Uint64(value)
	case string(schema.MetaTermKeyName):
		if len(value) != 8 {
			return damaged("%x is not a term", value)
		}
	case string(schema.FinishedCompactKeyName), string(schema.ScheduledCompactKeyName):
		return checkRevision(value)
	case string(schema.MetaStorageVersionName):
		return checkVersion(value)
	}
	return nil
}

// checkRevision checks a revision in the form in which etcd stores it: two numbers with _ between
// them, and a mark if a key was deleted.
func checkRevision(b []byte) error {
	if len(b) != 17 && len(b) != 18 || b[8] != '_' ||
		binary.BigEndian.Uint64(b) > maxRevision || binary.BigEndian.Uint64(b[9:]) > maxRevision {
		return damaged("%x is not a revision", b)
	}
	return nil
}

// checkVersion compares minor versions, as etcd does: etcd can't read data that a newer minor
// version wrote.
func checkVersion(value []byte) error {
	own := semver.New(version.Version)
	wrote, err := semver.NewVersion(string(value))
	if err != nil {
		return damaged("%q is not a version", value)
	}
	if wrote.Major > own.Major || wrote.Major == own.Major && wrote.Minor > own.Minor {
		return fmt.Errorf("%w: %d.%d, this is %d.%d", ErrNewerVersion, wrote.Major, wrote.Minor,
			own.Major, own.Minor)
	}
	return nil
}

// checkLog reads the whole log and returns the indexes of its last entry and of the last committed
// one. An entry that a killed process did not finish writing is not damage: etcd truncates it.
func checkLog(walDir string, lg *zap.Logger) (last, committed uint64, err error) {
	snapshots, err := wal.ValidSnapshotEntries(lg, walDir)
	if err != nil {
		return 0, 0, logError(err)
	}
	if len(snapshots) == 0 {
		return 0, 0, fmt.Errorf("%w: the beginning of the log is missing", ErrCorrupt)
	}
	from := snapshots[len(snapshots)-1]
	log, err := wal.OpenForRead(lg, walDir, from)
	if err != nil {
		return 0, 0, logError(err)
	}
	defer log.Close()
	_, state, entries, err := log.ReadAll()
	if err != nil {
		return 0, 0, logError(err)
	}
	if len(entries) == 0 {
		return from.GetIndex(), state.GetCommit(), nil
	}
	return entries[len(entries)-1].GetIndex(), state.GetCommit(), nil
}

func logError(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return err
	}
	return fmt.Errorf("%w: log: %w", ErrCorrupt, err)
}

// explain wraps err in an Error with a hint on what to do about it.
func explain(op string, err error) error {
	var already *Error
	if errors.As(err, &already) {
		return err
	}
	e := &Error{Op: op, Err: err}
	switch {
	case errors.Is(err, ErrLocked):
		e.Hint = "stop it, or use another directory"
	case errors.Is(err, ErrCorrupt):
		e.Hint = "restore a snapshot into a new directory, or remove this one to start over"
	case errors.Is(err, ErrForeign):
		e.Hint = "use an empty directory, or one that does not exist"
	case errors.Is(err, ErrNewerVersion):
		e.Hint = "use the release that wrote it, or a newer one"
	case errors.Is(err, ErrCluster):
		e.Hint = "take a snapshot of the cluster and restore it into a new directory"
	case errors.Is(err, fs.ErrPermission):
		e.Hint = "use a directory that this user can write to"
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, fs.ErrExist):
		e.Hint = "use a directory"
	case errors.Is(err, syscall.ENOSPC):
		e.Hint = "free up disk space"
	case errors.Is(err, syscall.EROFS):
		e.Hint = "make the file system writable"
	case errors.Is(err, syscall.EIO):
		e.Hint = "check the disk for errors"
	case errors.Is(err, errRemoved):
		e.Hint = "start again with its new location, or start over"
	}
	return e
}
