package cli

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/kinproc/kinproc/server/internal/datadir"
)

// registered is a small file in the user's state directory, which lets kinproc list find a
// sandbox. What it says is only where to look: the folder of the sandbox tells the rest, and is
// checked as if the user had named it.
type registered struct {
	// Folder is the folder of the sandbox, see [folder].
	Folder     string    `json:"folder"`
	Name       string    `json:"name"`
	Version    string    `json:"version"`
	Kubernetes string    `json:"kubernetes,omitempty"`
	Started    time.Time `json:"started"`
	Stopped    time.Time `json:"stopped,omitzero"`
	Ephemeral  bool      `json:"ephemeral,omitempty"`
	// Port is the port that the sandbox keeps.
	Port int `json:"port,omitempty"`
}

const (
	// maxRegistered bounds how many sandboxes are listed.
	maxRegistered = 1000
	// manyRegistered is how many files there may be before a start removes those of sandboxes that
	// are gone, which kinproc list does otherwise.
	manyRegistered = 100
	// newlyRegistered is how long a file stays although its sandbox is missing, which may just have
	// been made again.
	newlyRegistered = time.Minute
)

// registryDir returns the directory of the files.
func registryDir() (string, error) {
	state := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(state) {
		var err error
		switch runtime.GOOS {
		case "darwin", "ios", "windows", "plan9":
			state, err = os.UserConfigDir() // state has no place of its own there
		default:
			if state, err = os.UserHomeDir(); err == nil {
				state = filepath.Join(state, ".local", "state")
			}
		}
		if err != nil {
			return "", err
		}
	}
	return filepath.Join(state, "kinproc", "sandboxes"), nil
}

func registryName(folder string) string {
	sum := sha256.Sum256([]byte(folder))
	return hex.EncodeToString(sum[:16]) + ".json"
}

// register writes the file of a sandbox. If there is no place for it, as in a container without a
// home directory, kinproc list will not show the sandbox.
func register(r registered) error {
	err := writeRegistered(r)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		return nil
	}
	return err
}

// sweepRegistry removes the files of sandboxes that are gone, if there are many files.
func sweepRegistry() {
	dir, err := registryDir()
	if err != nil {
		return
	}
	if files, err := os.ReadDir(dir); err == nil && len(files) > manyRegistered {
		_, _ = sandboxesOfUser()
	}
}

func writeRegistered(r registered) error {
	dir, err := registryDir()
	if err != nil {
		return nil // there is no home directory
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	private, err := openPrivate(dir, os.Geteuid())
	if err != nil {
		return err
	}
	defer private.close()
	// The home directory may be a repository.
	if err := datadir.KeepOutOfGit(dir); err != nil {
		return err
	}
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	name := registryName(r.Folder)
	temporary := fmt.Sprintf("%s.%d", name, os.Getpid())
	if err := private.root.WriteFile(temporary, data, 0o600); err != nil {
		return err
	}
	return private.root.Rename(temporary, name)
}

// unregister removes the file of a sandbox.
func unregister(folder string) {
	if dir, err := registryDir(); err == nil {
		_ = os.Remove(filepath.Join(dir, registryName(folder)))
	}
}

// listed is a sandbox of the user's.
type listed struct {
	registered
	// record is nil unless the sandbox is running.
	record *record
	// unknown is that of the sandbox.
	unknown bool
	// wrong is why its folder is not trusted, or nil.
	wrong error
}

// sandboxesOfUser returns all sandboxes of the user: running ones, and stopped ones with their
// data. It removes the files of those that are gone.
func sandboxesOfUser() ([]listed, error) {
	dir, err := registryDir()
	if err != nil {
		return nil, fmt.Errorf("find the sandboxes of this user: %w", err)
	}
	private, err := openPrivate(dir, os.Geteuid())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find the sandboxes of this user: %w", err)
	}
	defer private.close()
	files, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer files.Close()
	names, err := files.ReadDir(maxRegistered)
	if err != nil && len(names) > 0 {
		return nil, err
	}
	var all []listed
	for _, file := range names {
		if !strings.HasSuffix(file.Name(), ".json") {
			continue
		}
		data, err := private.read(file.Name())
		var r registered
		if err != nil || json.Unmarshal(data, &r) != nil || registryName(r.Folder) != file.Name() {
			continue
		}
		if l, ok := look(r); ok {
			all = append(all, l)
		} else if info, err := file.Info(); err == nil && time.Since(info.ModTime()) > newlyRegistered ||
			r.Ephemeral {
			_ = private.root.Remove(file.Name())
		}
	}
	slices.SortFunc(all, func(a, b listed) int {
		running := func(l listed) int {
			if l.record != nil {
				return 0
			}
			return 1
		}
		return cmp.Or(cmp.Compare(running(a), running(b)), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.Folder, b.Folder))
	})
	return all, nil
}

// look finds out whether a sandbox still exists, and whether it is running.
func look(r registered) (l listed, exists bool) {
	l.registered = r
	private, err := openPrivate(r.Folder, os.Geteuid())
	if errors.Is(err, fs.ErrNotExist) {
		return l, false
	}
	if err != nil {
		l.wrong = err
		return l, true
	}
	defer private.close()
	if _, err := private.root.Lstat(lockName); errors.Is(err, fs.ErrNotExist) {
		return l, false // its files have been removed, but not their directory
	}
	if key, err := originKey(); err == nil && !isOrigin(private, ".", key) {
		l.wrong = errors.New("you have not made it with kinproc on this machine; " +
			"kinproc delete --data-dir deletes it nevertheless")
		return l, true
	}
	s := &sandbox{folder: r.Folder}
	l.wrong = s.readRecord(private, ".")
	l.record, l.unknown = s.record, s.unknown
	if l.record != nil {
		l.Name = l.record.Name
	}
	return l, l.record != nil || !r.Ephemeral
}
