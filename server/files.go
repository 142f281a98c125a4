package server

import (
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// contents is what a file must hold.
type contents struct {
	what  string
	pem   bool
	empty bool // whether it may be empty
}

func inPEM(what string) contents { return contents{what: what + " in PEM format", pem: true} }

// largestFile bounds the files that options name. None of them is nearly as large.
const largestFile = 16 << 20

// checkFiles returns an error about the first file of an option that cannot be used. The libraries
// that read the files would name their functions instead of options.
func (o *Options) checkFiles() error {
	for _, e := range entries(o) {
		if e.holds.what == "" {
			continue
		}
		var paths []string
		switch field := e.field.(type) {
		case *string:
			paths = []string{*field}
		case *[]string:
			paths = *field
		}
		for _, path := range paths {
			if path == "" {
				continue
			}
			if err := e.holds.check(path); err != nil {
				return o.wrong(e.field, "%w", err)
			}
		}
	}
	log := &o.Audit.LogOptions.Path
	if info, err := os.Stat(*log); *log != "" && err == nil && info.IsDir() {
		return o.wrong(log, "%s is a directory; name a file to write, or - for the standard output",
			*log)
	}
	return nil
}

// check returns what is wrong with a file. Pipes are left to those who read them, because what has
// been read from them is gone.
func (c contents) check(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no file %s; name one with %s", path, c.what)
	case err != nil:
		return unreadable(path, err)
	case info.IsDir():
		return fmt.Errorf("%s is a directory; name a file with %s", path, c.what)
	case info.Mode()&fs.ModeDevice != 0:
		return fmt.Errorf("%s is a device; name a file with %s", path, c.what)
	case !info.Mode().IsRegular():
		return nil
	case info.Size() > largestFile:
		return fmt.Errorf("%s has %d bytes, and may have at most %d; name a file with %s", path,
			info.Size(), largestFile, c.what)
	}
	opened, err := os.Open(path)
	if err != nil {
		return unreadable(path, err)
	}
	defer opened.Close()
	data, err := io.ReadAll(io.LimitReader(opened, largestFile))
	switch {
	case err != nil:
		return unreadable(path, err)
	case len(bytes.TrimSpace(data)) == 0 && !c.empty:
		return fmt.Errorf("%s is empty; it must hold %s", path, c.what)
	}
	if block, _ := pem.Decode(data); c.pem && block == nil {
		return fmt.Errorf("%s has no PEM block; it must hold %s", path, c.what)
	}
	return nil
}

// unreadable returns why a file cannot be read, without the name of a function.
func unreadable(path string, err error) error {
	if of := new(fs.PathError); errors.As(err, &of) {
		err = of.Err
	}
	return fmt.Errorf("%s cannot be read: %w; check its permissions", path, err)
}
