package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/kinproc/kinproc/server/cli/internal/settings"
)

// settingsName is the file in which a data directory remembers how it was started.
const settingsName = "settings.json"

// readMemory returns what a data directory remembers, which is nothing if there is no such
// directory. If somebody else wrote that, and the directory is to be adopted, it counts as
// nothing.
func readMemory(dir string, adopt bool) (settings.Memory, error) {
	var m settings.Memory
	private, err := openPrivate(dir, os.Geteuid())
	if err != nil {
		return m, nil // if it is unsuitable, the server says why
	}
	defer private.close()
	if _, err := private.root.Lstat(settingsName); errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	data, err := private.read(settingsName)
	if err != nil {
		return m, fmt.Errorf("--data-dir: %s: %w; remove it", filepath.Join(dir, settingsName), err)
	}
	key, err := originKey()
	if err == nil {
		m, err = verifyMemory(private, key, data)
	}
	if marked, used := originOf(dir, key); used && !marked {
		return settings.Memory{}, nil // the whole directory is not the user's, which the start refuses
	}
	if err != nil && !adopt {
		return m, fmt.Errorf("--data-dir: the settings in %s are not trusted: %w; remove the file, or "+
			"start with --adopt, which does without it", filepath.Join(dir, settingsName), err)
	}
	return m, nil
}

func verifyMemory(private *privateDir, key, data []byte) (m settings.Memory, err error) {
	var file authentic
	if json.Unmarshal(data, &file) != nil {
		return m, errNotOwn
	}
	if err := verify(private, ".", key, forSettings, file.Settings, file.MAC); err != nil {
		return m, err
	}
	err = json.Unmarshal(file.Settings, &m)
	return m, err
}

// writeMemory writes what a data directory remembers. It does nothing if the directory does not
// bear the user's mark, because then nobody would trust the settings.
func writeMemory(dir string, m settings.Memory) error {
	private, err := openPrivate(dir, os.Geteuid())
	if err != nil {
		return err
	}
	defer private.close()
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	mac := sign(private, ".", forSettings, text)
	if mac == "" {
		return nil
	}
	data, err := json.MarshalIndent(authentic{MAC: mac, Settings: text}, "", "  ")
	if err != nil {
		return err
	}
	if err := private.root.WriteFile(settingsName+".new", append(data, '\n'), 0o600); err != nil {
		return err
	}
	return private.root.Rename(settingsName+".new", settingsName)
}

// remember notes what was given, for the next start in the same data directory.
func (o *startOptions) remember(port int, kubeconfig string) error {
	if o.ephemeral {
		return nil
	}
	m := o.memory
	if err := m.Learn(o.flags, o.given); err != nil {
		return err
	}
	if setting, ok := o.setTo("secure-port"); !ok || setting.Value == "0" {
		m.Port = port
		delete(m.Flags, "secure-port")
	}
	if !o.server.ReadOnly { // otherwise the nodes are as they were
		m.Nodes, _ = o.nodes()
	}
	if o.file != nil && !o.server.ReadOnly {
		for _, manifest := range o.file.Manifests {
			if !slices.Contains(m.Applied, manifest.Path) {
				m.Applied = append(slices.Clip(m.Applied), manifest.Path)
			}
		}
	}
	m.Keys = hashKeys(o.server.DataDir)
	if kubeconfig != "" {
		m.Kubeconfigs = addKubeconfig(m.Kubeconfigs, kubeconfig)
	}
	return writeMemory(o.server.DataDir, m)
}

// maxKubeconfigs is how many kubeconfigs a data directory remembers.
const maxKubeconfigs = 32

// addKubeconfig adds a path to the kubeconfigs that still exist, in the place of the oldest if
// there are many.
func addKubeconfig(paths []string, path string) []string {
	kept := slices.DeleteFunc(slices.Clone(paths), func(old string) bool {
		_, err := os.Lstat(old)
		return old == path || errors.Is(err, fs.ErrNotExist)
	})
	kept = append(kept, path)
	return kept[max(0, len(kept)-maxKubeconfigs):]
}

// portOf returns the port of a URL.
func portOf(hostPort string) int {
	_, port, err := net.SplitHostPort(hostPort)
	if err != nil {
		return 0
	}
	number, _ := strconv.Atoi(port) // it is one
	return number
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
