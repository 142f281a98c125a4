package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"

	"github.com/kinproc/kinproc/chain/documents"
)

// sandbox is a control plane that was found in a directory rather than named by the caller. The
// directory may have come with a cloned repository, or others may be able to write to its parent.
// So it must belong to the caller, and its kubeconfig may hold only what kinproc writes.
type sandbox struct {
	// folder holds the kubeconfig and, while the control plane runs, the record.
	folder string
	// kubeconfig is the path of the kubeconfig.
	kubeconfig string
	// config is the content of the kubeconfig, with the paths of certificate files replaced by
	// their content.
	config *clientcmdapi.Config
	// files maps the absolute paths of those certificate files to their content.
	files map[string][]byte
	// record says how to reach the control plane. It is nil if the control plane is not running, or
	// was not started by kinproc start.
	record *record
	// stopped is true if the control plane is known not to be running.
	stopped bool
	// unknown is true if a process holds the folder but has no record there: it is starting or
	// stopping, or somebody has removed the record.
	unknown bool
	// foreign says which server of the kubeconfig kinproc has not written there. It is nil if there
	// is none.
	foreign error
}

// noSandboxError reports that there is no sandbox, and says what to do.
type noSandboxError struct{}

func (noSandboxError) Error() string {
	return "there is no sandbox in this directory or above it; start one with kinproc start, " +
		"or name a kubeconfig with --kubeconfig or KUBECONFIG"
}

// findSandbox returns the sandbox of a directory, or of the nearest parent that has one. If there
// are several, it prefers running ones, and of those the one that was started last. The error is a
// noSandboxError if there is none; otherwise it says why the sandbox is not trusted.
func findSandbox(dir string) (*sandbox, error) {
	sandboxes, err := findSandboxes(os.Geteuid(), dir)
	if err != nil {
		return nil, err
	}
	return sandboxes[0], nil
}

// findSandboxes returns all sandboxes of the nearest directory that has any, in the order of
// findSandbox's preference.
func findSandboxes(user int, dir string) ([]*sandbox, error) {
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	for { // the first path is the caller's, which is shorter in messages
		sandboxes, err := sandboxesIn(user, filepath.Join(dir, defaultDataDir))
		if err != nil || len(sandboxes) > 0 {
			return sandboxes, err
		}
		if dir = filepath.Dir(absolute); dir == absolute {
			return nil, noSandboxError{}
		}
		absolute = dir
	}
}

// sandboxesIn returns the sandboxes of a data directory, in the order of findSandbox's preference.
// It returns none if the directory does not exist.
func sandboxesIn(user int, state string) ([]*sandbox, error) {
	if _, err := os.Lstat(state); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	folders := []string{"."}
	ephemeral, _ := os.ReadDir(filepath.Join(state, ephemeralName)) // checked below
	for _, e := range ephemeral {
		folders = append(folders, filepath.Join(ephemeralName, e.Name()))
	}
	folders = slices.DeleteFunc(folders, func(folder string) bool {
		_, err := os.Lstat(filepath.Join(state, folder, kubeconfigName))
		return errors.Is(err, fs.ErrNotExist) // it is not ready yet
	})
	if len(folders) == 0 {
		return nil, nil
	}
	private, err := openPrivate(state, user)
	if err != nil {
		return nil, notTrusted(filepath.Join(state, folders[0], kubeconfigName), err)
	}
	defer private.close()
	var found []*sandbox
	for _, folder := range folders {
		s := &sandbox{folder: filepath.Join(state, folder), files: map[string][]byte{}}
		s.kubeconfig = filepath.Join(s.folder, kubeconfigName)
		if err := s.read(private, folder); err != nil {
			return nil, notTrusted(s.kubeconfig, err)
		}
		if err := s.readRecord(private, folder); err != nil {
			return nil, err
		}
		if s.stopped && folder != "." {
			continue // it was killed, and its data is gone
		}
		found = append(found, s)
	}
	slices.SortStableFunc(found, func(a, b *sandbox) int {
		switch {
		case a.record != nil && b.record != nil:
			return b.record.Started.Compare(a.record.Started)
		case b.record != nil:
			return 1
		case a.record != nil:
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

// read reads the files of a folder, whose path is relative to the data directory.
func (s *sandbox) read(private *privateDir, folder string) error {
	data, err := private.read(filepath.Join(folder, kubeconfigName))
	if err != nil {
		return err
	}
	var marks map[string]mark
	s.config, marks, err = decode(data, func(path string) ([]byte, error) {
		name, err := private.within(path)
		if err != nil {
			return nil, err
		}
		data, err := private.read(name)
		s.files[filepath.Join(private.path, name)] = data
		return data, err
	})
	if err == nil {
		s.foreign = s.checkServers(private, folder, marks)
	}
	return err
}

// readRecord finds out whether the control plane is running and, if so, reads its record.
func (s *sandbox) readRecord(private *privateDir, folder string) error {
	lock := filepath.Join(folder, lockName)
	if _, err := private.root.Lstat(lock); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if _, err := private.read(lock); err != nil { // which refuses links and pipes
		return fmt.Errorf("%s is not trusted: %w", s.folder, err)
	}
	runs, known := running(s.folder)
	if s.stopped = known && !runs; !runs {
		return nil
	}
	var err error
	s.record, err = readRunning(private, folder)
	s.unknown = err == nil && s.record == nil
	return err
}

// readRunning reads the record of a folder, which is nil if there is none.
func readRunning(private *privateDir, folder string) (*record, error) {
	name := filepath.Join(folder, recordName)
	if _, err := private.root.Lstat(name); errors.Is(err, fs.ErrNotExist) {
		return nil, nil // the control plane is starting or stopping
	}
	data, err := private.read(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var r record
	var file authentic
	if err == nil && json.Unmarshal(data, &file) != nil {
		err = errNotOwnRecord
	}
	if err == nil {
		if key, noKey := originKey(); noKey == nil &&
			verify(private, folder, key, forRunning, file.Running, file.MAC) != nil {
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
			"which process runs there", filepath.Join(private.path, name), err)
	}
	return &r, nil
}

var errNotOwnRecord = errors.New("kinproc start has not written it there for you")

// decode parses a kubeconfig and returns it as a configuration if it is trusted, with the marks of
// its clusters.
func decode(
	data []byte, read func(path string) ([]byte, error),
) (*clientcmdapi.Config, map[string]mark, error) {
	var written clientcmdv1.Config
	if err := documents.DecodeStrict(data, &written); err != nil {
		return nil, nil, fmt.Errorf("it is not a kubeconfig that kinproc wrote: %w", err)
	}
	config, err := trusted(&written, read)
	if err != nil {
		return nil, nil, err
	}
	marks := map[string]mark{}
	for _, c := range written.Clusters {
		for _, e := range c.Cluster.Extensions {
			var m mark
			if e.Name == kubeconfigMark && json.Unmarshal(e.Extension.Raw, &m) == nil {
				marks[c.Name] = m
			}
		}
	}
	return config, marks, nil
}

// checkServers returns an error if a kubeconfig leads to another server than the one that kinproc
// start wrote there. Else a repository could lead requests, and what they hold, to a port of its
// own choice.
func (s *sandbox) checkServers(private *privateDir, folder string, marks map[string]mark) error {
	key, err := originKey()
	if err != nil {
		return nil // then nothing has a MAC
	}
	for name, c := range s.config.Clusters {
		text, err := clusterText(c)
		if err == nil {
			err = verify(private, folder, key, forCluster, text, marks[name].MAC)
		}
		if err != nil {
			return fmt.Errorf("%s is not trusted: kinproc start has not written the server of cluster "+
				"%q there for you; kinproc start writes it again, or if you trust it, name it with "+
				"--kubeconfig or KUBECONFIG", s.kubeconfig, name)
		}
	}
	return nil
}

// clusterText returns what the MAC of a cluster is made of: the server, and how it is recognized.
func clusterText(c *clientcmdapi.Cluster) ([]byte, error) {
	return json.Marshal([]string{
		c.Server, c.TLSServerName, string(c.CertificateAuthorityData),
	})
}
