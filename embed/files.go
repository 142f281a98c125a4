package embed

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/server/v3/storage/datadir"
)

// errRemoved means that the data directory was removed or moved while in use, and perhaps replaced.
var errRemoved = errors.New("the data directory was removed or moved")

// filesInterval is how often the files are checked. If they were removed, the writes since the last
// check are lost.
const filesInterval = time.Second

// watchFiles detects that the data directory was removed. etcd would not notice for a long time: it
// keeps writing to files that no longer have a name, and acknowledges writes that are lost.
func (e *Etcd) watchFiles() {
	ended, wait := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(wait)
		tick := time.NewTicker(filesInterval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-e.faults.any:
				return
			case <-ended:
				return
			}
			if err := e.missingFile(); err != nil {
				e.faults.report(err)
			}
		}
	}()
	e.undo = append(e.undo, func() error { close(ended); <-wait; return nil })
}

func (e *Etcd) missingFile() error {
	// The lock file stays the same as long as the directory does. etcd replaces other files.
	lock := filepath.Join(e.dir, lockName)
	if now, err := os.Stat(lock); err == nil && !os.SameFile(now, e.lockInfo) {
		return fmt.Errorf("%w: %s was replaced", errRemoved, lock)
	}
	for _, path := range []string{
		lock, datadir.ToBackendFileName(e.dir), datadir.ToWALDir(e.dir),
	} {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w: %s no longer exists", errRemoved, path)
		}
	}
	return nil
}
