package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"path/filepath"
	"strconv"
	"time"

	"github.com/kinproc/kinproc/server/cli/internal/origin"
	"github.com/kinproc/kinproc/server/cli/internal/private"
	"github.com/kinproc/kinproc/server/cli/internal/settings"
)

// Record describes how to reach a running control plane.
type Record struct {
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

// PortOf returns the port of a URL, or 0.
func PortOf(server string) int {
	u, err := url.Parse(server)
	if err != nil {
		return 0
	}
	port, _ := strconv.Atoi(u.Port())
	return port
}

// RecordIn returns the record of the control plane that runs in a data directory. It is nil if none
// runs there, if it is not ready yet, or if the directory is unsuitable; the server then says why.
func RecordIn(dir string) (*Record, error) {
	if runs, _ := held(dir); !runs {
		return nil, nil
	}
	d, err := private.Open(dir)
	if err != nil {
		return nil, nil
	}
	defer d.Close()
	return readRecord(d, ".")
}

// readRecord reads the record of a folder, which is nil if there is none: the control plane is
// starting or stopping.
func readRecord(dir *private.Dir, folder string) (*Record, error) {
	name := filepath.Join(folder, recordName)
	data, err := dir.Read(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var r Record
	var file origin.Authentic
	if err == nil && json.Unmarshal(data, &file) != nil {
		err = errNotOwnRecord
	}
	if err == nil {
		err = origin.Verify(dir, folder, origin.Running, file.Running, file.MAC)
		switch {
		case errors.Is(err, origin.ErrNoKey):
			err = nil
		case err != nil:
			err = errNotOwnRecord
		}
	}
	if err == nil {
		err = json.Unmarshal(file.Running, &r)
	}
	if err == nil && r.PID <= 0 {
		err = fmt.Errorf("process %d cannot be", r.PID)
	}
	if err != nil {
		return nil, fmt.Errorf("%s is not trusted: %w; remove it: kinproc stop then asks the system "+
			"which process runs there", filepath.Join(dir.Path, name), err)
	}
	return &r, nil
}

var errNotOwnRecord = errors.New("kinproc start did not write it there for you")

// write writes the record into a folder.
func (r Record) write(dir *private.Dir) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	data, err := json.MarshalIndent(origin.Authentic{
		MAC: origin.Sign(dir, ".", origin.Running, text), Running: text,
	}, "", "  ")
	if err != nil {
		return err
	}
	return dir.Write(recordName, data)
}
