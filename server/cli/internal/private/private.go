// Package private reads and writes files that nobody but the user can have written: anybody else
// who could write them could tell kinproc what to do.
package private

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/kinproc/kinproc/server/internal/plainfile"
)

// MaxFile is the largest file that is read, in bytes. It is far more than a kubeconfig or a
// certificate needs.
const MaxFile = 1 << 20

// Dir is a directory that belongs to the user and that nobody else can write to. The same must be
// true of the files that are read from it.
type Dir struct {
	// Root is for what needs no check.
	Root *os.Root
	// Path is absolute.
	Path string
	user int
	// check returns an error if what is read is not the user's.
	check func(info fs.FileInfo, user int) error
}

// OpenWork opens a directory in which the user keeps files of their own, such as kinproc.yaml.
// Others may write to the directory itself, as to /tmp. If the user has named the files, they may
// belong to anybody.
func OpenWork(dir string, named bool) (*Dir, error) {
	path, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	check := checkOwn
	if named {
		check = func(fs.FileInfo, int) error { return nil }
	}
	return &Dir{root, path, os.Geteuid(), check}, nil
}

// Open opens a directory. The path must not be a symbolic link.
func Open(dir string) (*Dir, error) { return openAs(os.Geteuid(), dir) }

func openAs(user int, dir string) (*Dir, error) {
	path, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	before, err := os.Lstat(dir)
	if err != nil {
		return nil, err
	}
	if !before.IsDir() {
		return nil, fmt.Errorf("%s is %s, not a directory", dir, typeName(before))
	}
	if err := checkPrivate(before, user); err != nil {
		return nil, fmt.Errorf("%s %w", dir, err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	// From here on, root is the same directory, even if something is renamed.
	if after, err := root.Stat("."); err != nil || !os.SameFile(before, after) {
		return nil, errors.Join(fmt.Errorf("%s was replaced while it was read", dir), root.Close())
	}
	return &Dir{root, path, user, checkPrivate}, nil
}

// Close closes the directory.
func (d *Dir) Close() { _ = d.Root.Close() }

// Within returns the name, relative to the directory, of a path that is relative to the directory
// or absolute.
func (d *Dir) Within(path string) (name string, err error) {
	absolute := path
	if !filepath.IsAbs(path) {
		absolute = filepath.Join(d.Path, path)
	}
	if name, err = filepath.Rel(d.Path, absolute); err != nil || !filepath.IsLocal(name) {
		return "", fmt.Errorf("%s is outside of %s", path, d.Path)
	}
	return name, nil
}

// Has reports whether there is something with one of the names below the directory, of whatever
// type.
func (d *Dir) Has(names ...string) bool {
	for _, name := range names {
		if _, err := d.Root.Lstat(name); err == nil {
			return true
		}
	}
	return false
}

// Open opens a file below the directory. Neither the file nor any directory on the path to it may
// be a symbolic link.
func (d *Dir) Open(name string) (*os.File, error) {
	var info fs.FileInfo
	for i := range len(name) + 1 {
		if i < len(name) && !os.IsPathSeparator(name[i]) {
			continue
		}
		part := name[:i]
		var err error
		if info, err = d.Root.Lstat(part); err != nil {
			return nil, err
		}
		switch {
		case i < len(name) && !info.IsDir():
			return nil, fmt.Errorf("%s is %s, not a directory", part, typeName(info))
		case i == len(name) && !info.Mode().IsRegular():
			return nil, fmt.Errorf("%s is %s, not a file", part, typeName(info))
		}
		if err := d.check(info, d.user); err != nil {
			return nil, fmt.Errorf("%s %w", part, err)
		}
	}
	f, err := plainfile.OpenIn(d.Root, name)
	if err != nil {
		return nil, err
	}
	if opened, err := f.Stat(); err != nil || !os.SameFile(info, opened) {
		f.Close()
		return nil, fmt.Errorf("%s was replaced while it was read", name)
	}
	return f, nil
}

// Read reads a file as Open opens it.
func (d *Dir) Read(name string) ([]byte, error) {
	f, err := d.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxFile+1))
	if len(data) > MaxFile {
		return nil, fmt.Errorf("%s has more than %d bytes", name, MaxFile)
	}
	return data, err
}

// Write replaces a file in one step. Only one process may write it at a time.
func (d *Dir) Write(name string, data []byte) error {
	temporary := name + ".new"
	// What is there may be a link to another file, or a pipe.
	if err := d.Root.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := d.Root.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return d.Root.Rename(temporary, name)
}

func typeName(info fs.FileInfo) string {
	switch mode := info.Mode(); {
	case mode.IsRegular():
		return "a file"
	case mode.IsDir():
		return "a directory"
	case mode&fs.ModeSymlink != 0:
		return "a symbolic link"
	case mode&fs.ModeNamedPipe != 0:
		return "a named pipe"
	default:
		return "a special file (" + strings.Trim(mode.Type().String(), "-") + ")"
	}
}
