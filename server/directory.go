package server

import (
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/kinproc/kinproc/embed"
	"github.com/kinproc/kinproc/server/internal/ownership"
	"github.com/kinproc/kinproc/server/internal/stopper"
)

// The contents of a data directory.
const (
	etcdDir = "etcd"
	pkiDir  = "pki"
	// ephemeralDir is where the command line records control planes that keep their data elsewhere.
	ephemeralDir = "ephemeral"
	// originFile is where the command line notes who made a data directory.
	originFile = "origin"
)

// openDir returns the directory of a control plane: the data directory or, without one, a new
// temporary directory.
func openDir(o *Options, s *stopper.Stopper) (string, error) {
	if o.DataDir != "" {
		if err := ownDir(o.DataDir); err != nil {
			return "", o.wrong("DataDir", "data-dir", "%w", err)
		}
		return o.DataDir, nil
	}
	dir, remove, err := embed.TempDir("")
	if err != nil {
		return "", err
	}
	s.Push("temporary files", remove)
	return dir, nil
}

// ownPKIDir creates a directory of shared keys, or makes sure that an existing one belongs to the
// caller alone.
func ownPKIDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("%w; name a directory that you can create or read", err)
	}
	if err := ownership.Claim(dir); err != nil {
		return fmt.Errorf("%w, or name another directory", err)
	}
	return ownership.KeepOutOfGit(dir)
}

// ownDir creates a data directory, or makes sure that an existing one belongs to the caller alone:
// anyone who can write keys or data there is an administrator of the control plane. It refuses a
// directory with unrelated contents, such as a home directory.
func ownDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("%w; name a directory that you can create or write to", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	ours := func(e fs.DirEntry) bool { return e.Name() == etcdDir || e.Name() == pkiDir }
	known := func(e fs.DirEntry) bool {
		return e.Name() == ownership.IgnoreFile || e.Name() == ephemeralDir || e.Name() == originFile
	}
	foreign := slices.IndexFunc(entries, func(e fs.DirEntry) bool { return !known(e) })
	if foreign >= 0 && !slices.ContainsFunc(entries, ours) {
		return fmt.Errorf("%s was not made by kinproc: it holds %q; name an empty or a new directory",
			dir, entries[foreign].Name())
	}
	if err := ownership.Claim(dir); err != nil {
		return fmt.Errorf("%w, or name another directory", err)
	}
	return nil
}
