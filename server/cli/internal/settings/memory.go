package settings

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/kinproc/kinproc/server/cli/internal/origin"
	"github.com/kinproc/kinproc/server/cli/internal/private"
)

// memoryName is the file in which a data directory remembers how it was started.
const memoryName = "settings.json"

// once are the flags that are about one start, and not about the cluster.
func once() []string {
	return []string{
		"adopt", "data-dir", "detach", "ephemeral", "forget", "from", "help", "kubeconfig", "timings",
		"v",
	}
}

// Once describes them for the help.
func Once() string { return "--" + strings.Join(once(), ", --") }

// isRemembered reports whether a later start in the same data directory uses a flag again.
func isRemembered(flag *pflag.Flag) bool {
	return !flag.Hidden && !slices.Contains(once(), flag.Name)
}

// isPath reports whether the values of a flag are paths. They are remembered as absolute ones,
// because the next start may be in another working directory.
func isPath(flag string) bool {
	switch flag {
	case "authentication-config", "authorization-config", "encryption-provider-config", "config":
		return true
	}
	for _, suffix := range []string{"-file", "-path", "-dir", "-cafile", "-certfile", "-keyfile"} {
		if strings.HasSuffix(flag, suffix) {
			return true
		}
	}
	return false
}

// Memory is what a data directory remembers of its starts.
type Memory struct {
	// Flags are the flags that were given, with their values in order.
	Flags map[string][]string `json:"flags,omitempty"`
	// Port is the port that was chosen, because no flag named one.
	Port int `json:"port,omitempty"`
	// Nodes are the numbers of simulated nodes at the last start, by the name of their kind, which
	// is empty for those of no kind.
	Nodes map[string]int `json:"nodes,omitempty"`
	// Applied are the manifests of the file that have been applied.
	Applied []string `json:"applied,omitempty"`
	// Kubeconfigs are the kubeconfigs to which the sandbox's context was added.
	Kubeconfigs []string `json:"kubeconfigs,omitempty"`
	// Keys are the hashes of the private keys that are never replaced, by the names of their files.
	Keys map[string]string `json:"keys,omitempty"`
}

// learn adds the flags of a start to the memory. Flags that were given before change.
func (m *Memory) learn(flags *pflag.FlagSet, given map[string][]string) error {
	learnt := maps.Clone(m.Flags)
	if learnt == nil {
		learnt = map[string][]string{}
	}
	for name, values := range given {
		if !isRemembered(flags.Lookup(name)) {
			continue
		}
		learnt[name] = slices.Clone(values)
		if !isPath(name) {
			continue
		}
		for i, path := range learnt[name] {
			if path == "" || path == "-" { // none, and standard output
				continue
			}
			absolute, err := filepath.Abs(path)
			if err != nil {
				return err
			}
			learnt[name][i] = absolute
		}
	}
	m.Flags = learnt
	return nil
}

// ReadMemory returns what a data directory remembers, which is nothing if there is no such
// directory. If somebody else wrote that, and the directory is to be adopted, it counts as nothing.
func ReadMemory(dir string, adopt bool) (Memory, error) {
	var m Memory
	d, err := private.Open(dir)
	if err != nil {
		return m, nil // if it is unsuitable, the server says why
	}
	defer d.Close()
	data, err := d.Read(memoryName)
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err != nil {
		return m, fmt.Errorf("--data-dir: %s: %w; remove it", dir, err) // which names the file
	}
	m, err = decodeMemory(d, data)
	if marked, _ := origin.Marked(d); !marked && origin.Used(d) {
		return Memory{}, nil // the whole directory is not the user's, which the start refuses
	}
	if err != nil && !adopt {
		return m, fmt.Errorf("--data-dir: the settings in %s are not trusted: %w; remove the file, or "+
			"start with --adopt, which ignores it", filepath.Join(dir, memoryName), err)
	}
	return m, nil
}

func decodeMemory(d *private.Dir, data []byte) (m Memory, err error) {
	var file origin.Authentic
	if json.Unmarshal(data, &file) != nil {
		return m, origin.ErrNotOwn
	}
	if err := origin.Verify(d, ".", origin.Settings, file.Settings, file.MAC); err != nil {
		return m, err
	}
	err = json.Unmarshal(file.Settings, &m)
	return m, err
}

// write writes what a data directory remembers. It does nothing if the directory does not bear the
// user's mark, because then nobody would trust the settings.
func (m *Memory) write(dir string) error {
	d, err := private.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	mac := origin.Sign(d, ".", origin.Settings, text)
	if mac == "" {
		return nil
	}
	data, err := json.MarshalIndent(origin.Authentic{MAC: mac, Settings: text}, "", "  ")
	if err != nil {
		return err
	}
	return d.Write(memoryName, append(data, '\n'))
}

// maxKubeconfigs is how many kubeconfigs a data directory remembers.
const maxKubeconfigs = 32

// addKubeconfig adds a path to the kubeconfigs that still exist, in the place of the oldest if
// there are many.
func (m *Memory) addKubeconfig(path string) {
	kept := slices.DeleteFunc(slices.Clone(m.Kubeconfigs), func(old string) bool {
		_, err := os.Lstat(old)
		return old == path || errors.Is(err, fs.ErrNotExist)
	})
	kept = append(kept, path)
	m.Kubeconfigs = kept[max(0, len(kept)-maxKubeconfigs):]
}
