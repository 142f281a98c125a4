// Package datadir has the directory of a control plane: what lies in it, and whose it is. The
// directory and everything in it are accessible to the caller alone. The package refuses what other
// users may have put there, and takes away their permission to read the rest.
package datadir

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/kinproc/kinproc/embed"
	"github.com/kinproc/kinproc/server/internal/option"
	"github.com/kinproc/kinproc/server/internal/stopper"
)

// The contents of a data directory.
const (
	etcdDir = "etcd"
	pkiDir  = "pki"
	// writersDir has files that say who wrote what etcd holds.
	writersDir = "writers"
	// ephemeralDir is where the command line records control planes that keep their data elsewhere.
	ephemeralDir = "ephemeral"
	// originFile is where the command line notes who made a data directory.
	originFile = "origin"
)

// Contents returns the names of everything that kinproc writes to a data directory. The mark of its
// owner comes last, so that what is left of an interrupted removal is still the owner's.
func Contents() []string {
	return []string{
		etcdDir, writersDir, pkiDir, ephemeralDir, "kubeconfig", "kinproc.log",
		"settings.json", "settings.json.new",
		"running.json", "running.json.new", "running.lock", "ready.lock", IgnoreFile, originFile,
	}
}

// Config says where the directory is.
type Config struct {
	// Path is that of the data directory. If it is empty, the directory is a temporary one.
	Path  string
	Names option.Names
}

// Dir is the directory of a control plane.
type Dir struct {
	Path string
	// Kept is false for a temporary directory, in which etcd has the top to itself.
	Kept bool
}

// CheckFree returns an error if another control plane runs in the data directory.
func CheckFree(c Config) error {
	if c.Path == "" {
		return nil
	}
	if err := embed.InUse(filepath.Join(c.Path, etcdDir)); err != nil {
		return c.wrong(err)
	}
	return nil
}

// Open creates the directory, or makes sure that an existing one belongs to the caller alone.
func Open(c Config, s *stopper.Stopper) (*Dir, error) {
	if c.Path != "" {
		if err := own(c.Path); err != nil {
			return nil, c.wrong(err)
		}
		return &Dir{Path: c.Path, Kept: true}, nil
	}
	dir, remove, err := embed.TempDir("")
	if err != nil {
		return nil, err
	}
	s.Push("temporary files", remove)
	return &Dir{Path: dir}, nil
}

func (c Config) wrong(err error) error { return c.Names.Wrong("DataDir", "%w", err) }

// Etcd returns the directory of etcd's data.
func (d *Dir) Etcd() string {
	if !d.Kept {
		return d.Path
	}
	return filepath.Join(d.Path, etcdDir)
}

// PKI returns the directory of keys and certificates.
func (d *Dir) PKI() string { return filepath.Join(d.Path, pkiDir) }

// Writers returns the directory of who wrote what, or nothing if it is not kept.
func (d *Dir) Writers() string {
	if !d.Kept {
		return ""
	}
	return filepath.Join(d.Path, writersDir)
}

// ClaimKeys creates a directory of shared keys, or makes sure that an existing one belongs to the
// caller alone.
func ClaimKeys(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("%w; name a directory that you can create or read", err)
	}
	if err := Claim(dir); err != nil {
		return fmt.Errorf("%w, or name another directory", err)
	}
	return KeepOutOfGit(dir)
}

// own creates a data directory, or makes sure that an existing one belongs to the caller alone:
// anyone who can write keys or data there is an administrator of the control plane. It refuses a
// directory with unrelated contents, such as a home directory.
func own(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("%w; name a directory that you can create or write to", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	ours := func(e fs.DirEntry) bool { return e.Name() == etcdDir || e.Name() == pkiDir }
	known := func(e fs.DirEntry) bool {
		return slices.Contains([]string{IgnoreFile, ephemeralDir, originFile, writersDir}, e.Name())
	}
	foreign := slices.IndexFunc(entries, func(e fs.DirEntry) bool { return !known(e) })
	if foreign >= 0 && !slices.ContainsFunc(entries, ours) {
		return fmt.Errorf("%s was not made by kinproc: it holds %q; name an empty or a new directory",
			dir, entries[foreign].Name())
	}
	if err := Claim(dir); err != nil {
		return fmt.Errorf("%w, or name another directory", err)
	}
	return nil
}
