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

// errRemoved says that the data directory went away while it was in use.
var errRemoved = errors.New("the data directory was removed or moved")

// filesInterval is how often the files are looked for: what was written since then is lost if they are gone.
const filesInterval = time.Second

// watchFiles finds out that the data directory was removed. etcd would not notice it for long: it goes on writing into files that have no
// name any more, and acknowledges what nobody will find again.
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
	for _, path := range []string{filepath.Join(e.dir, lockName), datadir.ToBackendFileName(e.dir), datadir.ToWALDir(e.dir)} {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w: there is no %s any more", errRemoved, path)
		}
	}
	return nil
}
