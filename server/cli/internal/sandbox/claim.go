package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/kinproc/kinproc/server/cli/internal/origin"
	"github.com/kinproc/kinproc/server/cli/internal/private"
	"github.com/kinproc/kinproc/server/internal/datadir"
)

// Claim refuses a data directory with data or keys that this user has not made on this machine,
// unless the caller adopts it. It marks a new directory as the caller's before there is anything in
// it, and one that is adopted. If the start fails before the control plane is ready, undo removes a
// directory that did not exist before; it takes the folder that the start holds by then, or nil.
func Claim(path string, adopt bool) (undo func(holds *Folder), err error) {
	nothing := func(*Folder) {}
	_, err = os.Lstat(path)
	absent := errors.Is(err, fs.ErrNotExist)
	switch marked, used, err := origin.Of(path); {
	case used && !marked && !adopt && err != nil:
		return nil, fmt.Errorf("--data-dir: cannot tell whether you made %s: %w; "+
			"if you trust whoever made it, start with --adopt", path, err)
	case used && !marked && !adopt:
		return nil, fmt.Errorf("--data-dir: %s was not made by you on this machine: whoever made it "+
			"chose its objects and may know its keys; remove it, or start with --adopt if you trust them",
			path)
	case marked || err != nil:
		return nothing, nil
	case !used && !isNew(path):
		return nothing, nil // the server says why it is unsuitable
	}
	dir, err := private.Open(path)
	if err != nil {
		return nothing, nil // the server says why it is unsuitable
	}
	defer dir.Close()
	if err := origin.Mark(dir); err != nil {
		return nil, fmt.Errorf("--data-dir: mark %s: %w; "+
			"name a directory that you can create or write to", path, err)
	}
	if !absent {
		return nothing, nil
	}
	// If another start uses the directory by then, it stays.
	return func(holds *Folder) { _, _ = removeData(path, holds) }, nil
}

// isNew reports whether a directory has nothing in it but what kinproc writes before data and keys.
// It creates the directory if there is none.
func isNew(path string) bool {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return false
	}
	entries, err := os.ReadDir(path)
	return err == nil && !slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		return e.Name() != datadir.IgnoreFile && e.Name() != ephemeralName && e.Name() != origin.Name
	})
}
