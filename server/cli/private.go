package cli

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

// maxPrivateFile is in bytes. It is far more than a kubeconfig or a certificate needs.
const maxPrivateFile = 1 << 20

// privateDir is a directory that belongs to a user and that nobody else can write to. The same must
// be true of the files that are read from it.
type privateDir struct {
	root *os.Root
	path string // absolute
	user int
	// check returns an error if what is read is not the user's.
	check func(info fs.FileInfo, user int) error
}

// openWork opens a directory in which the user keeps files of their own, such as kinproc.yaml.
// Others may write to the directory itself, as to /tmp. If the user has named the files, they may
// belong to anybody.
func openWork(dir string, user int, named bool) (*privateDir, error) {
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
	return &privateDir{root, path, user, check}, nil
}

// openPrivate opens a directory. The path must not be a symbolic link.
func openPrivate(dir string, user int) (*privateDir, error) {
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
	d := &privateDir{root: root, path: path, user: user, check: checkPrivate}
	// From here on, root is the same directory, even if something is renamed.
	if after, err := root.Stat("."); err != nil || !os.SameFile(before, after) {
		return nil, errors.Join(fmt.Errorf("%s was replaced while it was read", dir), root.Close())
	}
	return d, nil
}

func (d *privateDir) close() { _ = d.root.Close() }

// within returns the name, relative to the directory, of a path that is relative to the directory
// or absolute.
func (d *privateDir) within(path string) (name string, err error) {
	absolute := path
	if !filepath.IsAbs(path) {
		absolute = filepath.Join(d.path, path)
	}
	if name, err = filepath.Rel(d.path, absolute); err != nil || !filepath.IsLocal(name) {
		return "", fmt.Errorf("%s is outside of %s", path, d.path)
	}
	return name, nil
}

// open opens a file below the directory. Neither the file nor any directory on the path to it may
// be a symbolic link.
func (d *privateDir) open(name string) (*os.File, error) {
	var info fs.FileInfo
	for i := range len(name) + 1 {
		if i < len(name) && !os.IsPathSeparator(name[i]) {
			continue
		}
		part := name[:i]
		var err error
		if info, err = d.root.Lstat(part); err != nil {
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
	f, err := plainfile.OpenIn(d.root, name)
	if err != nil {
		return nil, err
	}
	if opened, err := f.Stat(); err != nil || !os.SameFile(info, opened) {
		f.Close()
		return nil, fmt.Errorf("%s was replaced while it was read", name)
	}
	return f, nil
}

// read reads a file as open opens it.
func (d *privateDir) read(name string) ([]byte, error) {
	f, err := d.open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxPrivateFile+1))
	if len(data) > maxPrivateFile {
		return nil, fmt.Errorf("%s has more than %d bytes", name, maxPrivateFile)
	}
	return data, err
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
