package datadir

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// The modes of directories and files that are closed to other users.
const (
	directoryMode fs.FileMode = 0o700
	fileMode      fs.FileMode = 0o600
)

// Claim checks the directory at path and everything below it, from the top down. It refuses what
// belongs to another user, what other users can write to, and everything but directories, files and
// sockets: a symbolic link would lead out of the directory, and a named pipe or a device would
// block its reader. A directory that others can write to is accepted while it is empty. What others
// can read is closed to them: the modes become 0700 and 0600. Where Go knows no file owners, as on
// Windows, only the types of files are checked.
func Claim(path string) error {
	path = filepath.Clean(path) // a trailing slash would follow a symbolic link
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if info.Mode().Type() == fs.ModeSymlink {
		return fmt.Errorf("%s is a symbolic link, which is not followed: name the directory itself", path)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return err
	}
	defer root.Close()
	opened, err := root.Stat(".")
	if err != nil {
		return err
	}
	if !os.SameFile(info, opened) {
		return fmt.Errorf("%s was replaced while it was being checked: try again", path)
	}
	return tree{root, path}.claim(".", opened)
}

// tree is an open directory, so that nobody can put another one in its place.
type tree struct {
	root *os.Root
	path string
}

func (t tree) claim(name string, info fs.FileInfo) error {
	path := filepath.Join(t.path, name)
	kind := info.Mode().Type()
	switch kind {
	case 0, fs.ModeDir, fs.ModeSocket:
	case fs.ModeSymlink:
		return fmt.Errorf("%s is a symbolic link, which is not followed: remove it", path)
	case fs.ModeNamedPipe:
		return fmt.Errorf("%s is a named pipe, not a file: remove it", path)
	default:
		return fmt.Errorf("%s is neither a file nor a directory (mode %s): remove it", path, info.Mode())
	}
	if owner, user := owner(info); owner != user {
		return fmt.Errorf("%s belongs to user %d, and this is user %d: start as that user, or remove it",
			path, owner, user)
	}
	entries, err := t.entries(name, kind)
	if err != nil {
		return err
	}
	open := openTo(info)
	writable := open&0o022 != 0
	if writable && (kind == 0 || len(entries) > 0) {
		return fmt.Errorf(
			"%s can be written to by other users (mode %04o), who may have put their own keys or data "+
				"there: remove it, or revoke that permission with chmod go-w if you trust its contents",
			path, info.Mode().Perm())
	}
	if open != 0 {
		mode := fileMode
		if kind == fs.ModeDir {
			mode = directoryMode
		}
		if err := t.root.Chmod(name, mode); err != nil {
			return fmt.Errorf("close %s to other users: %w", path, err)
		}
	}
	if writable { // others could add entries until now
		if entries, err = t.entries(name, kind); err != nil {
			return err
		}
	}
	for _, e := range entries {
		below := filepath.Join(name, e.Name())
		info, err := t.root.Lstat(below)
		if os.IsNotExist(err) {
			continue // another process uses the directory; taking the lock will fail
		}
		if err != nil {
			return err
		}
		if err := t.claim(below, info); err != nil {
			return err
		}
	}
	return nil
}

func (t tree) entries(name string, kind fs.FileMode) ([]fs.DirEntry, error) {
	if kind != fs.ModeDir {
		return nil, nil
	}
	return fs.ReadDir(t.root.FS(), filepath.ToSlash(name))
}
