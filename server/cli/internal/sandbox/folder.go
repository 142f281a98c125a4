package sandbox

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"

	"github.com/kinproc/kinproc/server/cli/internal/origin"
	"github.com/kinproc/kinproc/server/cli/internal/private"
	"github.com/kinproc/kinproc/server/internal/datadir"
)

// Folder is the folder of the control plane of this process, which holds a lock on the lock file
// there while it runs.
type Folder struct {
	Path   string // absolute
	lock   *fileutil.LockedFile
	ready  io.Closer    // nil until it is announced
	remove func() error // nil if the folder stays

	mu     sync.Mutex // guards the record
	record Record
}

// Hold locks an existing folder. The error is fileutil.ErrLocked if that folder's control plane is
// running.
func Hold(path string) (*Folder, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	locked, err := lock(path)
	if err != nil {
		return nil, err
	}
	f := &Folder{Path: path, lock: locked}
	// The record of a control plane that was killed must not be taken for this one's: its process
	// ID may be that of any process by now.
	if err := f.removeRecord(); err != nil {
		return nil, errors.Join(err, locked.Close())
	}
	return f, nil
}

// TakenError says that an ephemeral sandbox of the same name is running.
type TakenError struct{ Name string }

func (e TakenError) Error() string {
	return fmt.Sprintf("an ephemeral sandbox %q is already running in this directory; choose another "+
		"name", e.Name)
}

// HoldEphemeral creates and locks the folder of an ephemeral control plane below DefaultDir, which
// it creates if necessary. If a control plane of the same name is running there, it appends a
// number to the name or, if the user chose the name, returns a TakenError.
func HoldEphemeral(name string, chosen bool) (*Folder, string, error) {
	if err := makeStateDir(DefaultDir); err != nil {
		return nil, "", err
	}
	parent := filepath.Join(DefaultDir, ephemeralName)
	sweepEphemeral(parent)
	for number := 1; ; number++ {
		numbered := name
		if number > 1 {
			numbered = fmt.Sprintf("%s-%d", name, number)
		}
		path := filepath.Join(parent, numbered)
		if err := os.MkdirAll(path, 0o700); err != nil {
			return nil, "", err
		}
		f, err := Hold(path)
		switch {
		case err == nil:
			f.remove = func() error { return removeEphemeral(path) }
			return f, numbered, nil
		case !errors.Is(err, fileutil.ErrLocked):
			return nil, "", err
		case chosen:
			return nil, "", TakenError{name}
		}
	}
}

// makeStateDir creates the directory in which an ephemeral control plane leaves its record, or
// makes sure that an existing one belongs to the caller.
func makeStateDir(state string) error {
	if err := os.Mkdir(state, 0o700); err == nil {
		return datadir.KeepOutOfGit(state)
	} else if !errors.Is(err, fs.ErrExist) {
		return err
	}
	dir, err := private.Open(state)
	if err != nil {
		return err
	}
	dir.Close()
	err = datadir.Claim(filepath.Join(state, ephemeralName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// sweepEphemeral removes the folders of killed ephemeral control planes.
func sweepEphemeral(parent string) {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return // the directory does not exist yet
	}
	for _, e := range entries {
		path := filepath.Join(parent, e.Name())
		locked, err := fileutil.TryLockFile(filepath.Join(path, lockName), os.O_RDWR, 0o600)
		if err != nil {
			continue // it is running or starting
		}
		_ = os.RemoveAll(path)
		locked.Close()
	}
}

// removeEphemeral removes the folder of an ephemeral control plane, and the directories above it if
// they hold nothing else.
func removeEphemeral(path string) error {
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	parent := filepath.Dir(path)
	_ = os.Remove(parent) // fails if it has other folders
	state := filepath.Dir(parent)
	if entries, err := os.ReadDir(state); err == nil && len(entries) == 1 &&
		entries[0].Name() == datadir.IgnoreFile {
		return os.RemoveAll(state)
	}
	return nil
}

// Mark marks the folder of an ephemeral control plane as the user's, so that its record can have a
// MAC.
func (f *Folder) Mark() error {
	dir, err := private.Open(f.Path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return origin.Mark(dir)
}

// Announce lets other commands find the control plane, which is ready.
func (f *Folder) Announce(r Record) error {
	dir, err := private.Open(f.Path)
	if err != nil {
		return err
	}
	defer dir.Close()
	if f.ready, err = lockReady(filepath.Join(f.Path, readyName)); err != nil {
		return fmt.Errorf("lock %s: %w", filepath.Join(f.Path, readyName), err)
	}
	f.mu.Lock()
	f.record = r
	err = r.write(dir)
	f.mu.Unlock()
	if err != nil {
		return err
	}
	defer sweepRegistry()
	return f.entry().register()
}

// SetDashboard notes the new link of the dashboard, after the old one has been used.
func (f *Folder) SetDashboard(link string) {
	dir, err := private.Open(f.Path)
	if err != nil {
		return // only the link is outdated
	}
	defer dir.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.record.Dashboard = link
	_ = f.record.write(dir)
}

// entry returns what lets kinproc list find the control plane.
func (f *Folder) entry() Entry {
	f.mu.Lock()
	defer f.mu.Unlock()
	return Entry{
		Port: PortOf(f.record.URL), Folder: f.Path, Name: f.record.Name, Version: f.record.Version,
		Kubernetes: f.record.Kubernetes, Started: f.record.Started, Ephemeral: f.record.Ephemeral,
	}
}

// Retire notes that a control plane that was announced has been stopped.
func (f *Folder) Retire() error {
	e := f.entry()
	if e.Ephemeral || !f.isThere() {
		unregister(e.Folder)
		return nil
	}
	e.Ended = time.Now()
	return e.register()
}

// Release removes the record and unlocks the folder.
func (f *Folder) Release() error {
	var err error
	if f.isThere() {
		err = f.removeRecord()
	}
	if f.remove != nil {
		err = errors.Join(err, f.remove())
	}
	if f.ready != nil { // before the other lock, which lets the next process take both
		err = errors.Join(err, f.ready.Close())
	}
	return errors.Join(err, f.lock.Close())
}

// isThere reports whether the folder is the one that was locked. Somebody may have put another one
// in its place, where another process runs.
func (f *Folder) isThere() bool {
	now, err := os.Stat(filepath.Join(f.Path, lockName))
	if err != nil {
		return false
	}
	locked, err := f.lock.Stat()
	return err == nil && os.SameFile(now, locked)
}

func (f *Folder) removeRecord() error {
	err := os.Remove(filepath.Join(f.Path, recordName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
