package sandbox

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kinproc/kinproc/server/cli/internal/origin"
	"github.com/kinproc/kinproc/server/cli/internal/private"
	"github.com/kinproc/kinproc/server/cli/internal/settings"
)

// ErrNone reports that there is no sandbox, and says what to do.
var ErrNone = errors.New("there is no sandbox in this directory or above it; start one with " +
	"kinproc start, or name a kubeconfig with --kubeconfig or KUBECONFIG")

// Find returns the sandbox of a directory, or of the nearest parent that has one. If there are
// several, it prefers running ones, and of those the one that was started last. The error is
// ErrNone if there is none; otherwise it says why the sandbox is not trusted.
func Find(dir string) (*Sandbox, error) {
	sandboxes, err := findAll(dir)
	if err != nil {
		return nil, err
	}
	return sandboxes[0], nil
}

// findAll returns all sandboxes of the nearest directory that has any, in the order of Find's
// preference.
func findAll(dir string) ([]*Sandbox, error) {
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	for { // the first path is the caller's, which is shorter in messages
		sandboxes, err := findIn(filepath.Join(dir, DefaultDir))
		if err != nil || len(sandboxes) > 0 {
			return sandboxes, err
		}
		if dir = filepath.Dir(absolute); dir == absolute {
			return nil, ErrNone
		}
		absolute = dir
	}
}

// findIn returns the sandboxes of a data directory, in the order of Find's preference. It returns
// none if the directory does not exist.
func findIn(state string) ([]*Sandbox, error) {
	if _, err := os.Lstat(state); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	folders := []string{"."}
	ephemeral, _ := os.ReadDir(filepath.Join(state, ephemeralName)) // checked below
	for _, e := range ephemeral {
		folders = append(folders, filepath.Join(ephemeralName, e.Name()))
	}
	folders = slices.DeleteFunc(folders, func(folder string) bool {
		_, err := os.Lstat(filepath.Join(state, folder, KubeconfigName))
		return errors.Is(err, fs.ErrNotExist) // it is not ready yet
	})
	if len(folders) == 0 {
		return nil, nil
	}
	dir, err := private.Open(state)
	if err != nil {
		return nil, notTrusted(filepath.Join(state, folders[0], KubeconfigName), err)
	}
	defer dir.Close()
	var found []*Sandbox
	for _, folder := range folders {
		s := &Sandbox{Entry: Entry{Folder: filepath.Join(state, folder)}, files: map[string][]byte{}}
		s.Kubeconfig = filepath.Join(s.Folder, KubeconfigName)
		if err := s.readKubeconfig(dir, folder); err != nil {
			return nil, notTrusted(s.Kubeconfig, err)
		}
		if err := s.readRecord(dir, folder); err != nil {
			return nil, err
		}
		if s.Stopped && folder != "." {
			continue // it was killed, and its data is gone
		}
		found = append(found, s)
	}
	slices.SortStableFunc(found, func(a, b *Sandbox) int {
		switch {
		case a.Record != nil && b.Record != nil:
			return b.Record.Started.Compare(a.Record.Started)
		case b.Record != nil:
			return 1
		case a.Record != nil:
			return -1
		}
		return 0
	})
	return found, nil
}

// notTrusted does not wrap err: a missing certificate file must not look like a missing sandbox.
func notTrusted(kubeconfig string, err error) error {
	return fmt.Errorf(
		"%s is not trusted: %v; if you trust it, name it with --kubeconfig or KUBECONFIG",
		kubeconfig, err)
}

// Choice says which sandbox is meant.
type Choice struct {
	// DataDir is its data directory. If it is empty, it is .kinproc in the working directory or in
	// the nearest one above.
	DataDir string
	// Name is its name, or empty.
	Name string
}

// Find returns the sandboxes that may be meant, in the order of Find's preference.
func (c Choice) Find() ([]*Sandbox, error) {
	if c.DataDir == "" {
		return findAll(".")
	}
	found, err := findIn(c.DataDir)
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("there is no sandbox in %s; start one with kinproc start --data-dir %s",
			c.DataDir, c.DataDir)
	}
	return found, err
}

// Running returns the running sandbox that is meant: of this directory or, if it has none of that
// name, of the user.
func (c Choice) Running() (*Sandbox, error) {
	found, err := c.Find()
	if err != nil && (c.Name == "" || c.DataDir != "") {
		return nil, err // otherwise there may be one of that name elsewhere
	}
	i := slices.IndexFunc(found, func(s *Sandbox) bool {
		return s.Runs() && (c.Name == "" || c.Name == s.Record.Name)
	})
	switch {
	case i >= 0:
		return found[i], nil
	case c.Name == "" && found[0].Unknown:
		return nil, found[0].NotRunning()
	case c.Name == "":
		return nil, fmt.Errorf("the sandbox in %s is not running", found[0].Folder)
	case c.DataDir != "":
		return nil, fmt.Errorf("no sandbox %q is running in %s; see kinproc list", c.Name, c.DataDir)
	}
	s, err := ofName(c.Name, func(s *Sandbox) bool { return s.Record != nil })
	if err == nil && s == nil {
		err = fmt.Errorf("no sandbox %q is running here or elsewhere; see kinproc list", c.Name)
	}
	return s, err
}

// ofName returns the user's sandbox of a name for which a condition holds, or nil if there is none.
// It is an error if there are several.
func ofName(name string, condition func(*Sandbox) bool) (*Sandbox, error) {
	all, err := OfUser()
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(s *Sandbox) bool {
		return s.Name != name || s.Wrong != nil || !condition(s)
	})
	switch len(all) {
	case 0:
		return nil, nil
	case 1:
		return all[0], nil
	}
	var folders []string
	for _, s := range all {
		folders = append(folders, s.Folder)
	}
	return nil, fmt.Errorf("there are %d sandboxes %q, in %s; name one with --data-dir", len(all),
		name, strings.Join(folders, " and "))
}

// OfUser returns all sandboxes of the user: running ones, and stopped ones with their data. It
// removes the files of those that are gone from the registry.
func OfUser() ([]*Sandbox, error) {
	r, err := openRegistry()
	if err != nil {
		return nil, fmt.Errorf("find the sandboxes of this user: %w", err)
	}
	if r == nil {
		return nil, nil
	}
	defer r.Close()
	entries, err := r.entries()
	if err != nil {
		return nil, err
	}
	var all []*Sandbox
	for _, e := range entries {
		if s, ok := look(e); ok {
			all = append(all, s)
		} else if e.Ephemeral || time.Since(e.written) > newlyRegistered {
			_ = r.Root.Remove(registryName(e.Folder))
		}
	}
	slices.SortFunc(all, func(a, b *Sandbox) int {
		running := func(s *Sandbox) int {
			if s.Record != nil {
				return 0
			}
			return 1
		}
		return cmp.Or(cmp.Compare(running(a), running(b)), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.Folder, b.Folder))
	})
	return all, nil
}

// look finds out whether a sandbox of the registry still exists, and whether it is running.
func look(e Entry) (s *Sandbox, exists bool) {
	s = &Sandbox{Entry: e}
	dir, err := private.Open(e.Folder)
	if errors.Is(err, fs.ErrNotExist) {
		return s, false
	}
	if err != nil {
		s.Wrong = err
		return s, true
	}
	defer dir.Close()
	if _, err := dir.Root.Lstat(lockName); errors.Is(err, fs.ErrNotExist) {
		return s, false // its files have been removed, but not their directory
	} else if err != nil {
		s.Wrong = err
		return s, true
	}
	if marked, err := origin.Marked(dir); err == nil && !marked {
		s.Wrong = errors.New("it was not made by you with kinproc on this machine; " +
			"kinproc delete --data-dir deletes it nevertheless")
		return s, true
	}
	s.Wrong = s.readRecord(dir, ".")
	return s, s.Record != nil || !e.Ephemeral
}

// Kept returns the sandbox that is meant, whether it is running or not: the one of the working
// directory, or the user's of that name.
func (c Choice) Kept() (*Sandbox, error) {
	dir := c.DataDir
	if dir == "" && c.Name == "" {
		dir = DefaultDir
	}
	if dir == "" {
		s, err := ofName(c.Name, func(*Sandbox) bool { return true })
		if err == nil && s == nil {
			err = fmt.Errorf("there is no sandbox %q; see kinproc list", c.Name)
		}
		return s, err
	}
	d, err := private.Open(dir)
	if err == nil {
		defer d.Close()
		if !d.Has(lockName, origin.Name, "pki", "etcd") {
			err = os.ErrNotExist
		}
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("there is no sandbox in %s; kinproc list shows all", dir)
	}
	if err != nil {
		return nil, err
	}
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	s := &Sandbox{Entry: Entry{Folder: absolute, Name: NameFor(dir)}}
	if m, err := settings.ReadMemory(dir, false); err == nil && len(m.Flags["name"]) > 0 {
		s.Name = m.Flags["name"][len(m.Flags["name"])-1]
	}
	if err := s.readRecord(d, "."); err != nil {
		return nil, err
	}
	if c.Name != "" && c.Name != s.Name {
		return nil, fmt.Errorf("the sandbox in %s is %q, not %q", dir, s.Name, c.Name)
	}
	return s, nil
}

// sweepRegistry removes the files of sandboxes that are gone, if there are many files.
func sweepRegistry() {
	dir, err := registryDir()
	if err != nil {
		return
	}
	if files, err := os.ReadDir(dir); err == nil && len(files) > manyRegistered {
		_, _ = OfUser()
	}
}
