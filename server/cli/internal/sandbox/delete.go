package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"

	"github.com/kinproc/kinproc/server/cli/internal/private"
	"github.com/kinproc/kinproc/server/cli/internal/settings"
	"github.com/kinproc/kinproc/server/internal/datadir"
)

// Delete stops a sandbox and removes its files and its entries in kubeconfigs. It says what that
// was, unless nothing was removed.
func (s *Sandbox) Delete(ctx context.Context) (removed string, err error) {
	if s.Wrong != nil {
		return "", fmt.Errorf("%s is not trusted: %w", s.Folder, s.Wrong)
	}
	if s.Runs() {
		if err := s.Stop(ctx); err != nil {
			return "", err
		}
		if s.Record.Ephemeral {
			unregister(s.Folder)
			return "it was ephemeral, and is stopped", nil
		}
	}
	// Settings that are not trusted name no files to change.
	memory, _ := settings.ReadMemory(s.Folder, false)
	left, err := removeData(s.Folder, nil)
	if err != nil {
		return "", fmt.Errorf("delete %s: %w", s.Folder, err)
	}
	unregister(s.Folder)
	removed = s.Folder + " with its objects and keys"
	if len(left) > 0 {
		removed = fmt.Sprintf("its objects and keys in %s, which stays because it also holds %s", s.Folder,
			strings.Join(left, ", "))
	}
	var errs []error
	for _, path := range memory.Kubeconfigs {
		contexts, err := removeEntriesOf(s.Folder, path)
		errs = append(errs, err)
		if len(contexts) > 0 {
			removed += fmt.Sprintf("; %s in %s", strings.Join(contexts, ", "), path)
		}
	}
	return removed, errors.Join(errs...)
}

// refuseEphemeral returns an error if an ephemeral sandbox is running below a data directory.
func refuseEphemeral(dir string) error {
	entries, _ := os.ReadDir(filepath.Join(dir, ephemeralName))
	for _, e := range entries {
		if runs, _ := held(filepath.Join(dir, ephemeralName, e.Name())); runs {
			return fmt.Errorf("the ephemeral sandbox %s is running there; stop it first with "+
				"kinproc stop %s", e.Name(), e.Name())
		}
	}
	return nil
}

// removeData removes what kinproc has written to a data directory, and the directory if nothing
// else is in it. It returns the names of what is left. The caller may hold the directory already.
func removeData(path string, holds *Folder) (left []string, err error) {
	dir, err := private.Open(path)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	if err := refuseEphemeral(path); err != nil {
		return nil, err
	}
	release := func() {}
	if holds == nil {
		holds, err = Hold(path)
		if errors.Is(err, fileutil.ErrLocked) {
			return nil, errors.New("it is in use")
		}
		if err != nil {
			return nil, err
		}
		release = sync.OnceFunc(func() { holds.lock.Close() })
		defer release()
	}
	if err := datadir.CheckFree(datadir.Config{Path: path}); err != nil {
		return nil, errors.New("it is in use by another program")
	}
	for _, name := range datadir.Contents() {
		if name == lockName {
			release() // Windows does not remove open files
		}
		if err := dir.Root.RemoveAll(name); err != nil {
			return nil, err
		}
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if len(left) > 0 {
		return left, nil
	}
	return nil, os.Remove(path)
}
