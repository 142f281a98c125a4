// Package sandbox finds the control planes that kinproc start runs, decides which of them to trust,
// and stops and deletes them; and it holds the folder of the one that this process runs.
package sandbox

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"

	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clientcmdlatest "k8s.io/client-go/tools/clientcmd/api/latest"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"

	"github.com/kinproc/kinproc/server/cli/internal/origin"
	"github.com/kinproc/kinproc/server/cli/internal/private"
)

// Sandbox is a control plane that was found rather than named by the caller. Its directory may have
// come with a cloned repository, or others may be able to write to its parent. So it must belong to
// the caller, and its kubeconfig may hold only what kinproc writes.
type Sandbox struct {
	Entry
	// Record says how to reach the control plane. It is nil if the control plane is not running, or
	// was not started by kinproc start.
	Record *Record
	// Stopped is true if the control plane is known not to be running.
	Stopped bool
	// Unknown is true if a process holds the folder but has no record there: it is starting or
	// stopping, or somebody has removed the record.
	Unknown bool
	// Wrong is why a folder of the registry is not trusted. It is nil if it is.
	Wrong error

	// What follows is missing if the sandbox was found by the registry.

	// Kubeconfig is the path of the kubeconfig.
	Kubeconfig string
	// Config is the content of the kubeconfig, with the paths of certificate files replaced by
	// their content.
	Config *clientcmdapi.Config
	// Foreign says which server of the kubeconfig kinproc has not written there. It is nil if there
	// is none.
	Foreign error
	// files maps the absolute paths of those certificate files to their content.
	files map[string][]byte
}

// readKubeconfig reads the kubeconfig of a folder, whose path is relative to the data directory,
// and the files that the kubeconfig names.
func (s *Sandbox) readKubeconfig(dir *private.Dir, folder string) error {
	data, err := dir.Read(filepath.Join(folder, KubeconfigName))
	if err != nil {
		return err
	}
	var marks map[string]mark
	s.Config, marks, err = decode(data, func(path string) ([]byte, error) {
		name, err := dir.Within(path)
		if err != nil {
			return nil, err
		}
		data, err := dir.Read(name)
		s.files[filepath.Join(dir.Path, name)] = data
		return data, err
	})
	if err == nil {
		s.Foreign = s.checkServers(dir, folder, marks)
	}
	return err
}

// checkServers returns an error if a kubeconfig leads to another server than the one that kinproc
// start wrote there. Otherwise a repository could lead requests, and what they hold, to a port of
// its own choice.
func (s *Sandbox) checkServers(dir *private.Dir, folder string, marks map[string]mark) error {
	for name, c := range s.Config.Clusters {
		text, err := clusterText(c)
		if err == nil {
			err = origin.Verify(dir, folder, origin.Cluster, text, marks[name].MAC)
		}
		if err != nil && !errors.Is(err, origin.ErrNoKey) {
			return fmt.Errorf("%s is not trusted: kinproc start did not write the server of cluster "+
				"%q there for you; kinproc start writes it again, or if you trust it, name it with "+
				"--kubeconfig or KUBECONFIG", s.Kubeconfig, name)
		}
	}
	return nil
}

// readRecord finds out whether the control plane is running and, if so, reads its record.
func (s *Sandbox) readRecord(dir *private.Dir, folder string) error {
	// To read the lock refuses links and pipes.
	if _, err := dir.Read(filepath.Join(folder, lockName)); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("%s is not trusted: %w", s.Folder, err)
	}
	runs, known := held(s.Folder)
	if s.Stopped = known && !runs; !runs {
		return nil
	}
	var err error
	if s.Record, err = readRecord(dir, folder); err != nil {
		return err
	}
	if s.Unknown = s.Record == nil; !s.Unknown {
		s.Name = s.Record.Name
	}
	return nil
}

// Held reports whether a process holds the folder.
func (s *Sandbox) Held() bool {
	runs, _ := held(s.Folder)
	return runs
}

// Runs reports whether a sandbox is running. If its record is missing, Runs asks the system which
// process has announced it.
func (s *Sandbox) Runs() bool {
	if s.Wrong != nil {
		return s.Held()
	}
	if s.Record != nil || !s.Unknown {
		return s.Record != nil
	}
	dir, err := private.Open(s.Folder)
	if err != nil {
		return false
	}
	defer dir.Close()
	pid, err := readyProcess(dir)
	if err != nil || pid == 0 {
		return false
	}
	s.Name = cmp.Or(s.Name, NameFor(s.Folder))
	s.Record = &Record{Name: s.Name, PID: pid, Ephemeral: inEphemeral(s.Folder)}
	return true
}

// NotRunning returns an error that says that the sandbox does not run, or that nobody can tell.
func (s *Sandbox) NotRunning() error {
	if s.Unknown {
		return fmt.Errorf("the sandbox in %s is starting or stopping, or its %s was removed; "+
			"wait, or end it with kinproc stop, Ctrl-C or kill", s.Folder, recordName)
	}
	return fmt.Errorf("the sandbox in %s is not running; start it with kinproc start", s.Folder)
}

// OpenLog opens the log of a sandbox that runs in the background, or did.
func (s *Sandbox) OpenLog() (*os.File, error) {
	dir, err := private.Open(s.Folder)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	file, err := dir.Open(LogName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no log in %s: only a sandbox that was started with --detach "+
			"has one", filepath.Clean(s.Folder))
	}
	return file, err
}

// Compare returns an error if the kubeconfig that somebody else has read differs from the one that
// was checked.
func (s *Sandbox) Compare(read *clientcmdapi.Config) error {
	var written clientcmdv1.Config
	if err := clientcmdlatest.Scheme.Convert(read, &written, nil); err != nil {
		return err
	}
	config, err := trusted(&written, func(path string) ([]byte, error) {
		data, ok := s.files[filepath.Clean(path)]
		if !ok {
			return nil, errors.New("not read before")
		}
		return data, nil
	})
	if err != nil || !reflect.DeepEqual(config, s.Config) {
		return fmt.Errorf("%s was replaced while it was read", s.Kubeconfig)
	}
	return nil
}

// Inline replaces the paths of files that were read with their content.
func (s *Sandbox) Inline(tls *rest.TLSClientConfig) {
	s.inline(&tls.CAFile, &tls.CAData)
	s.inline(&tls.CertFile, &tls.CertData)
	s.inline(&tls.KeyFile, &tls.KeyData)
}

func (s *Sandbox) inline(path *string, data *[]byte) {
	content, ok := s.files[filepath.Clean(*path)]
	if !ok {
		return
	}
	if *path = ""; len(*data) == 0 {
		*data = content
	}
}
