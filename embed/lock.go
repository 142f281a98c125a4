package embed

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
)

// lockName is the lock file of a data directory. The file is not removed when the lock is released:
// otherwise a process that has the old file open and a process that creates a new one could both
// hold a lock.
const lockName = "lock"

// pidOffset is the offset of the process ID. The first byte is left out because Windows locks it,
// and other processes can't read a locked byte.
const pidOffset = 1

type dirLock struct {
	file *fileutil.LockedFile
}

// lockDir locks a data directory for this process. The error names the process that holds the lock.
func lockDir(dir string) (*dirLock, error) { return lockFile(filepath.Join(dir, lockName)) }

// lockFile creates and locks a file and writes the process ID to it. A lock belongs to an open
// file, so locking the file a second time fails even in the same process.
func lockFile(path string) (*dirLock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	locked, err := fileutil.TryLockFile(path, os.O_RDWR, 0o600)
	if errors.Is(err, fileutil.ErrLocked) {
		return nil, lockHolder(path)
	}
	if err != nil {
		return nil, err
	}
	l := &dirLock{file: locked}
	if err := l.write("\n" + strconv.Itoa(os.Getpid()) + "\n"); err != nil {
		return nil, errors.Join(err, locked.Close())
	}
	return l, nil
}

// InUse returns an error that wraps [ErrLocked] and names the process, if a process uses the data
// directory. It changes nothing, and returns nil if the directory does not exist.
func InUse(dir string) error {
	path := filepath.Join(dir, lockName)
	if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	locked, err := fileutil.TryLockFile(path, os.O_RDWR, 0o600)
	if errors.Is(err, fileutil.ErrLocked) {
		return explain("lock "+dir, lockHolder(path))
	}
	if err == nil {
		return locked.Close()
	}
	return nil // starting etcd there says what is wrong
}

func lockHolder(path string) error {
	holder := "another process"
	if pid := readPID(path); pid == os.Getpid() {
		holder = "this process"
	} else if pid != 0 {
		holder = "process " + strconv.Itoa(pid)
	}
	return fmt.Errorf("%w by %s", ErrLocked, holder)
}

// readPID returns the process ID in a lock file, or 0 if the holder has not written it yet.
func readPID(path string) int {
	f, err := os.Open(path)
	if err != nil {
		return 0
	}
	defer f.Close()
	buf := make([]byte, 20)
	n, _ := f.ReadAt(buf, pidOffset)
	pid, err := strconv.Atoi(strings.TrimSpace(string(buf[:n])))
	if err != nil {
		return 0
	}
	return pid
}

func (l *dirLock) write(s string) error {
	if err := l.file.Truncate(0); err != nil {
		return err
	}
	_, err := l.file.WriteAt([]byte(s), 0)
	return err
}

func (l *dirLock) release() error {
	return errors.Join(l.file.Truncate(0), l.file.Close())
}
