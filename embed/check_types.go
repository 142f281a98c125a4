package embed

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/storage/datadir"
)

// checkTypes refuses what is neither a file nor a directory in the directories that etcd uses,
// before anything there is opened: opening a named pipe may block for ever, and a device may have
// no end.
func checkTypes(dir string) error {
	for _, d := range []string{dir, datadir.ToMemberDir(dir), datadir.ToSnapDir(dir), datadir.ToWALDir(dir)} {
		if info, err := os.Stat(d); err != nil || !info.IsDir() {
			continue // check says what is wrong with it
		}
		entries, err := os.ReadDir(d)
		if err != nil {
			return err
		}
		for _, e := range entries {
			path := filepath.Join(d, e.Name())
			info, err := os.Stat(path) // follows links, as who opens the file would
			if errors.Is(err, fs.ErrNotExist) || path == filepath.Join(dir, socketName) {
				continue
			}
			if err != nil {
				return err
			}
			if mode := info.Mode(); !mode.IsRegular() && !mode.IsDir() {
				return fmt.Errorf("%w: %s is %s, not a file", ErrCorrupt, path, typeName(mode))
			}
		}
	}
	return nil
}

func typeName(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeDevice != 0:
		return "a device"
	default:
		return "something special"
	}
}
