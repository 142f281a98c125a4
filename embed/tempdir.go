package embed

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
)

const (
	// tempPrefix begins the name of every temporary directory.
	tempPrefix = "kinproc-"
	// tempLockName is the file that marks a temporary directory. The process that created the
	// directory holds a lock on it. A permanent data directory never contains it.
	tempLockName = "kinproc-temporary.lock"
)

// TempDir creates a temporary directory below parent, or below [os.TempDir] if parent is empty, and
// returns a function that removes it. If the process dies before it calls that function, the
// directory is removed when the same user next calls TempDir with that parent. [Start] also removes
// such directories below os.TempDir. The removal runs in the background, and the returned function
// waits for it.
func TempDir(parent string) (dir string, remove func() error, err error) {
	if parent == "" {
		parent = os.TempDir()
	}
	if dir, err = os.MkdirTemp(parent, tempPrefix); err != nil {
		return "", nil, explain("create a temporary directory", err)
	}
	lock, err := lockFile(filepath.Join(dir, tempLockName))
	if err != nil {
		return "", nil, explain("create a temporary directory", errors.Join(err, os.RemoveAll(dir)))
	}
	endSweep := startSweep(parent)
	return dir, sync.OnceValue(func() error {
		endSweep()
		if err := removeTempDir(dir, lock); err != nil {
			return fmt.Errorf("remove the temporary directory: %w", err)
		}
		return nil
	}), nil
}

// startSweep removes the directories of dead processes in the background. The returned function
// stops the sweep early and waits for it to end.
func startSweep(parent string) (end func()) {
	stop, swept := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(swept)
		sweepTempDirs(parent, stop)
	}()
	return func() {
		close(stop)
		<-swept
	}
}

// sweepTempDirs removes the directories of dead processes. A directory that cannot be removed is
// left for the next sweep.
func sweepTempDirs(parent string, stop <-chan struct{}) {
	f, err := os.Open(parent)
	if err != nil {
		return
	}
	defer f.Close()
	for {
		names, err := f.Readdirnames(100) // the system's temporary directory may have very many entries
		for _, name := range names {
			select {
			case <-stop:
				return
			default:
			}
			if strings.HasPrefix(name, tempPrefix) {
				sweepTempDir(filepath.Join(parent, name))
			}
		}
		if err != nil {
			return
		}
	}
}

// sweepTempDir removes a directory if it belongs to this user and was created by TempDir in a
// process that has died.
func sweepTempDir(dir string) {
	if info, err := os.Lstat(dir); err != nil || !info.IsDir() || !privateToUser(info) {
		return
	}
	path := filepath.Join(dir, tempLockName)
	if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
		return
	}
	// A process writes its ID once it holds the lock. A directory without an ID is still being
	// created, and the process that creates it must be able to take the lock.
	if readPID(path) == 0 {
		return
	}
	lock, err := fileutil.TryLockFile(path, os.O_RDWR, 0o600)
	if err != nil {
		return
	}
	_ = removeTempDir(dir, &dirLock{lock})
}

// removeTempDir removes the lock last, so that if the process dies in the meantime, the rest of the
// directory is swept like any other.
func removeTempDir(dir string, lock *dirLock) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return lock.file.Close()
	}
	errs := []error{err}
	for _, e := range entries {
		if e.Name() != tempLockName {
			errs = append(errs, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return errors.Join(err, lock.file.Close())
	}
	// Windows cannot remove an open file. Another process that takes the lock now also removes the
	// rest.
	return errors.Join(lock.file.Close(), os.RemoveAll(dir))
}
