// Package plainfile opens files that somebody else has named or made. To open a named pipe takes
// until somebody writes to it, which may be for ever, with a thread of the process; to read a
// device may never end. So these are refused.
package plainfile

import (
	"errors"
	"io"
	"io/fs"
	"os"
)

// ErrNotRegular is the cause if what a name stands for is not a regular file.
var ErrNotRegular = errors.New("it is not a regular file")

// Open opens a regular file for reading.
func Open(name string) (*os.File, error) {
	return checked(os.OpenFile(name, os.O_RDONLY|dontWait, 0))
}

// OpenIn opens a regular file below a directory for reading.
func OpenIn(dir *os.Root, name string) (*os.File, error) {
	return checked(dir.OpenFile(name, os.O_RDONLY|dontWait, 0))
}

// checked returns a file if it is regular. The open file is checked, not its name, so that
// nobody can replace it in between.
func checked(f *os.File, err error) (*os.File, error) {
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: f.Name(), Err: ErrNotRegular}
	}
	if err != nil {
		_ = f.Close() // nothing was written
		return nil, err
	}
	return f, nil
}

// Read returns the content of a regular file.
func Read(name string) ([]byte, error) {
	f, err := Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}
