package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
)

// lockAttempts is how often to try to get the lock. Other commands hold it for an instant when they
// check whether the control plane runs.
const lockAttempts = 20

// lock locks a folder. The error is fileutil.ErrLocked if that folder's control plane is running.
func lock(folder string) (*fileutil.LockedFile, error) {
	for attempt := 1; ; attempt++ {
		locked, err := fileutil.TryLockFile(filepath.Join(folder, lockName), os.O_RDWR|os.O_CREATE, 0o600)
		if !errors.Is(err, fileutil.ErrLocked) || attempt == lockAttempts {
			return locked, err
		}
		time.Sleep(time.Millisecond)
	}
}

// held reports whether a process holds a folder. The second result is false if the lock file does
// not exist.
func held(folder string) (runs, known bool) {
	locked, err := fileutil.TryLockFile(filepath.Join(folder, lockName), os.O_RDWR, 0o600)
	if err == nil {
		locked.Close()
		return false, true
	}
	return errors.Is(err, fileutil.ErrLocked), errors.Is(err, fileutil.ErrLocked)
}
