package records

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"

	"github.com/kinproc/kinproc/server/internal/plainfile"
)

const (
	extension = ".json"
	lockName  = ".lock"

	// longestName is what all usual file systems permit, in bytes.
	longestName = 255
	// continued ends the name of a directory that only has the beginning of a segment, which the
	// entries of the directory continue.
	continued = "%"
)

// Files keeps each record in a file below a directory.
type Files struct {
	dir  string
	lock *fileutil.LockedFile
}

// OpenFiles creates the directory if needed, and locks it.
func OpenFiles(dir string) (*Files, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the directory for objects: %w", err)
	}
	lock, err := fileutil.TryLockFile(filepath.Join(dir, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if errors.Is(err, fileutil.ErrLocked) {
		return nil, fmt.Errorf("directory %s: another server uses it: stop that server, "+
			"or name another directory", dir)
	}
	if err != nil {
		return nil, fmt.Errorf("lock the directory for objects: %w", err)
	}
	return &Files{dir, lock}, nil
}

// Close releases the directory.
func (f *Files) Close() error { return f.lock.Close() }

// path returns the file of a key.
func (f *Files) path(key string) string {
	path := f.dir
	for s := range strings.SplitSeq(strings.Trim(key, "/"), "/") {
		path = filepath.Join(path, divide(escape(s)))
	}
	return path + extension
}

// divide divides an escaped segment that is too long for the name of a file among directories.
func divide(escaped string) string {
	path := ""
	for len(escaped)+len(extension) > longestName {
		n := longestName / 2
		if at := strings.LastIndex(escaped[:n], "%"); at > n-len("%XX") {
			n = at // not within an escape
		}
		path, escaped = filepath.Join(path, escaped[:n]+continued), escaped[n:]
		if escaped[0] == '.' {
			escaped = "%2E" + escaped[1:] // no hidden file
		}
	}
	return filepath.Join(path, escaped)
}

// escape returns a segment of a key as the name of a file. Upper-case letters are escaped for file
// systems that do not distinguish them.
func escape(segment string) string {
	var b strings.Builder
	for i := range len(segment) {
		c := segment[i]
		if 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == '.' && i > 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// Load calls each for the records whose keys begin with prefix, which is a directory.
func (f *Files) Load(
	ctx context.Context, prefix string, each func(key string, value []byte) error,
) error {
	root := strings.TrimSuffix(f.path(prefix), extension)
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && path == root {
			return nil
		}
		name := filepath.Base(path)
		if err != nil || d.IsDir() || filepath.Ext(name) != extension || strings.HasPrefix(name, ".") {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		data, err := plainfile.Read(path)
		if err != nil {
			return err
		}
		if !json.Valid(data) {
			return fmt.Errorf("file %s is not JSON: repair or remove it", path)
		}
		key, err := f.key(path)
		if err == nil {
			err = each(key, data)
		}
		if err != nil {
			return fmt.Errorf("file %s: %w", path, err)
		}
		return nil
	})
}

// key returns the key of a file.
func (f *Files) key(path string) (string, error) {
	relative, err := filepath.Rel(f.dir, strings.TrimSuffix(path, extension))
	if err != nil {
		return "", err
	}
	whole := strings.ReplaceAll(filepath.ToSlash(relative), continued+"/", "")
	segments := strings.Split(whole, "/")
	for i, s := range segments {
		if segments[i], err = url.PathUnescape(s); err != nil {
			return "", err
		}
	}
	return "/" + strings.Join(segments, "/"), nil
}

// Put replaces the file of a key. A crash leaves either the old or the new content.
func (f *Files) Put(_ context.Context, key string, value []byte) error {
	path := f.path(key)
	dir := filepath.Dir(path)
	if err := f.makeDir(dir); err != nil {
		return err
	}
	file, err := os.CreateTemp(dir, ".*.new")
	if err != nil {
		return err
	}
	_, err = file.Write(value)
	if err = errors.Join(err, file.Sync(), file.Close()); err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return syncDir(dir)
}

// makeDir creates a directory below f.dir, so that it outlasts a crash.
func (f *Files) makeDir(dir string) error {
	if _, err := os.Stat(dir); err == nil || dir == f.dir {
		return nil
	}
	if err := f.makeDir(filepath.Dir(dir)); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncDir(filepath.Dir(dir))
}

// Delete removes the file of a key.
func (f *Files) Delete(_ context.Context, key string) error {
	path := f.path(key)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// syncDir makes the entries of a directory durable. Windows has no such call and needs none.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
