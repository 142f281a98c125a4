package sandbox

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/kinproc/kinproc/server/cli/internal/private"
	"github.com/kinproc/kinproc/server/internal/datadir"
)

// Entry is a small file in the user's state directory, which lets kinproc list find a sandbox. What
// it says is only where to look: the folder of the sandbox tells the rest, and is checked as if the
// user had named it.
type Entry struct {
	// Folder is where the kubeconfig is and, while the control plane runs, the record.
	Folder     string    `json:"folder"`
	Name       string    `json:"name"`
	Version    string    `json:"version"`
	Kubernetes string    `json:"kubernetes,omitempty"`
	Started    time.Time `json:"started"`
	Ended      time.Time `json:"stopped,omitzero"`
	Ephemeral  bool      `json:"ephemeral,omitempty"`
	// Port is the port that the sandbox keeps.
	Port int `json:"port,omitempty"`

	written time.Time
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

// register writes the file. If there is no place for it, as in a container without a home
// directory, kinproc list will not show the sandbox.
func (e Entry) register() error {
	err := e.write()
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		return nil
	}
	return err
}

func (e Entry) write() error {
	path, err := registryDir()
	if err != nil {
		return nil // there is no home directory
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return err
	}
	dir, err := private.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	// The home directory may be a repository.
	if err := datadir.KeepOutOfGit(path); err != nil {
		return err
	}
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return dir.Write(registryName(e.Folder), data)
}

// unregister removes the file of a sandbox.
func unregister(folder string) {
	if dir, err := registryDir(); err == nil {
		_ = os.Remove(filepath.Join(dir, registryName(folder)))
	}
}

// registry is the directory of the files.
type registry struct{ *private.Dir }

// openRegistry returns nil if the user has no sandboxes.
func openRegistry() (*registry, error) {
	path, err := registryDir()
	if err != nil {
		return nil, err
	}
	dir, err := private.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return &registry{dir}, err
}

// entries returns the entries that can be read.
func (r *registry) entries() ([]Entry, error) {
	dir, err := r.Root.Open(".")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	files, err := dir.ReadDir(maxRegistered)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read %s: %w", r.Path, err)
	}
	var all []Entry
	for _, file := range files {
		if !strings.HasSuffix(file.Name(), ".json") {
			continue
		}
		data, err := r.Read(file.Name())
		var e Entry
		if err != nil || json.Unmarshal(data, &e) != nil || registryName(e.Folder) != file.Name() {
			continue
		}
		e.written = time.Now()
		if info, err := file.Info(); err == nil {
			e.written = info.ModTime()
		}
		all = append(all, e)
	}
	return all, nil
}
