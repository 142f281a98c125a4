package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"

	"github.com/kinproc/kinproc/server/cli/internal/settings"
	"github.com/kinproc/kinproc/server/internal/datadir"
)

// The files, besides the kubeconfig, by which other commands find a control plane that kinproc
// start runs. They are in its folder, which is the data directory or a folder below
// .kinproc/ephemeral.
const (
	recordName = "running.json"
	lockName   = "running.lock"
	// readyName is the file that the process locks when the control plane is ready. Unlike the other
	// lock, this one belongs to the process, so the kernel says which process that is.
	readyName     = "ready.lock"
	logName       = "kinproc.log"
	ephemeralName = "ephemeral"
)

// record describes how to reach a running control plane.
type record struct {
	Name       string    `json:"name"`
	PID        int       `json:"pid"`
	URL        string    `json:"url"`
	Kubeconfig string    `json:"kubeconfig"`
	Started    time.Time `json:"started"`
	Ephemeral  bool      `json:"ephemeral,omitempty"`
	// Version is that of kinproc, Kubernetes the minor version that it behaves as, and Nodes the
	// number of simulated nodes.
	Version    string `json:"version,omitempty"`
	Kubernetes string `json:"kubernetes,omitempty"`
	Nodes      int    `json:"nodes,omitempty"`
	// Dashboard is the link of the dashboard that the process serves, or empty.
	Dashboard string `json:"dashboard,omitempty"`
	// Settings are those in force, with their sources.
	Settings []settings.Setting `json:"settings,omitempty"`
}

// folder is the folder of a control plane. The control plane's process holds a lock on the lock
// file there while it runs.
type folder struct {
	path   string // absolute
	lock   *fileutil.LockedFile
	ready  io.Closer    // nil until it is announced
	remove func() error // nil if the folder stays
}

// lockAttempts is how often to try to get the lock. Other commands hold it for an instant when they
// check whether the control plane runs.
const lockAttempts = 20

// holdFolder locks an existing folder. The error is fileutil.ErrLocked if that folder's control
// plane is running.
func holdFolder(path string) (*folder, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	lock := filepath.Join(path, lockName)
	for attempt := 1; ; attempt++ {
		locked, err := fileutil.TryLockFile(lock, os.O_RDWR|os.O_CREATE, 0o600)
		if err == nil {
			f := &folder{path: path, lock: locked}
			// The record of one that was killed must not be taken for this one's: its process ID may be
			// that of any process by now.
			if err := f.removeRecord(); err != nil {
				return nil, errors.Join(err, locked.Close())
			}
			return f, nil
		}
		if !errors.Is(err, fileutil.ErrLocked) || attempt == lockAttempts {
			return nil, err
		}
		time.Sleep(time.Millisecond)
	}
}

// announce writes the record, which tells other commands that the control plane is ready.
func (f *folder) announce(r record) error {
	private, err := openPrivate(f.path, os.Geteuid())
	if err != nil {
		return err
	}
	defer private.close()
	if f.ready == nil {
		if f.ready, err = lockReady(filepath.Join(f.path, readyName)); err != nil {
			return fmt.Errorf("lock %s: %w", filepath.Join(f.path, readyName), err)
		}
	}
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	data, err := json.MarshalIndent(
		authentic{MAC: sign(private, ".", forRunning, text), Running: text}, "", "  ")
	if err != nil {
		return err
	}
	written := filepath.Join(f.path, recordName)
	if err := os.WriteFile(written+".new", data, 0o600); err != nil {
		return err
	}
	return os.Rename(written+".new", written)
}

// announcement is what other commands know of a running control plane.
type announcement struct {
	folder *folder
	page   *openedDashboard // nil if there is none

	mu     sync.Mutex
	record record
}

// renew notes the new link of the dashboard, after the old one has been used.
func (a *announcement) renew() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.record.Dashboard = a.page.link()
	_ = a.folder.announce(a.record) // only the link is outdated otherwise
}

// registered returns what lets kinproc list find the control plane.
func (a *announcement) registered() registered {
	a.mu.Lock()
	defer a.mu.Unlock()
	return registered{
		Port:   portOf(strings.TrimPrefix(a.record.URL, "https://")),
		Folder: a.folder.path, Name: a.record.Name, Version: a.record.Version,
		Kubernetes: a.record.Kubernetes, Started: a.record.Started, Ephemeral: a.record.Ephemeral,
	}
}

// retire notes that the control plane has been stopped.
func (a *announcement) retire() error {
	r := a.registered()
	if r.Ephemeral || !a.folder.isThere() {
		unregister(r.Folder)
		return nil
	}
	r.Stopped = time.Now()
	return register(r)
}

// release removes the record and unlocks the folder.
func (f *folder) release() error {
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
func (f *folder) isThere() bool {
	now, err := os.Stat(filepath.Join(f.path, lockName))
	if err != nil {
		return false
	}
	locked, err := f.lock.Stat()
	return err == nil && os.SameFile(now, locked)
}

func (f *folder) removeRecord() error {
	err := os.Remove(filepath.Join(f.path, recordName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// running reports whether the control plane of a folder is running. The second result is false if
// the lock file does not exist.
func running(path string) (runs, known bool) {
	locked, err := fileutil.TryLockFile(filepath.Join(path, lockName), os.O_RDWR, 0o600)
	if err == nil {
		locked.Close()
		return false, true
	}
	return errors.Is(err, fileutil.ErrLocked), errors.Is(err, fileutil.ErrLocked)
}

// holdEphemeral creates and locks the folder of an ephemeral control plane below a state directory,
// which it creates if necessary. If a control plane of the same name is running there, it appends a
// number to the name or, if the user chose the name, returns an error.
func holdEphemeral(state, name string, chosen bool) (*folder, string, error) {
	if err := makeStateDir(state); err != nil {
		return nil, "", err
	}
	parent := filepath.Join(state, ephemeralName)
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
		f, err := holdFolder(path)
		switch {
		case err == nil:
			f.remove = func() error { return removeEphemeral(state, path) }
			return f, numbered, nil
		case !errors.Is(err, fileutil.ErrLocked):
			return nil, "", err
		case chosen:
			return nil, "", usageError{
				fmt.Errorf("--name: an ephemeral sandbox %q is already running in this directory; "+
					"choose another name", name),
			}
		}
	}
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

// makeStateDir creates the directory in which an ephemeral control plane leaves its record, or
// makes sure that an existing one belongs to the caller.
func makeStateDir(state string) error {
	if err := os.Mkdir(state, 0o700); err == nil {
		return datadir.KeepOutOfGit(state)
	} else if !errors.Is(err, fs.ErrExist) {
		return err
	}
	private, err := openPrivate(state, os.Geteuid())
	if err != nil {
		return err
	}
	private.close()
	err = datadir.Claim(filepath.Join(state, ephemeralName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// removeEphemeral removes the folder of an ephemeral control plane, and the directories above it if
// they hold nothing else.
func removeEphemeral(state, path string) error {
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	_ = os.Remove(filepath.Dir(path)) // fails if it has other folders
	if entries, err := os.ReadDir(state); err == nil && len(entries) == 1 &&
		entries[0].Name() == datadir.IgnoreFile {
		return os.RemoveAll(state)
	}
	return nil
}
