package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/yaml"
)

// sandbox is a kubeconfig that was found in a data directory rather than named by the caller. The
// directory may have come with a cloned repository, or lie where others write too. So it must be
// the caller's own, and its kubeconfig may hold only what kinproc writes.
type sandbox struct {
	// kubeconfig is the file's path.
	kubeconfig string
	// config is what the file holds, with the content of certificate files in place of their paths.
	config *clientcmdapi.Config
	// files is the content of those certificate files by absolute path.
	files map[string][]byte
}

// findSandbox reads the kubeconfig in a data directory. The error is fs.ErrNotExist if there is no
// kubeconfig, and otherwise says why it is not trusted.
func findSandbox(dir string) (*sandbox, error) { return findSandboxOf(os.Geteuid(), dir) }

func findSandboxOf(user int, dir string) (*sandbox, error) {
	s := &sandbox{kubeconfig: filepath.Join(dir, kubeconfigName), files: map[string][]byte{}}
	if _, err := os.Lstat(s.kubeconfig); errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err := s.read(user, dir); err != nil {
		// Not wrapped: a missing certificate file does not make it a missing sandbox.
		return nil, fmt.Errorf("%s is not trusted: %v; if you trust it, name it with --kubeconfig or KUBECONFIG", s.kubeconfig, err)
	}
	return s, nil
}

func (s *sandbox) read(user int, dir string) error {
	private, err := openPrivate(dir, user)
	if err != nil {
		return err
	}
	defer private.close()
	data, err := private.read(kubeconfigName)
	if err != nil {
		return err
	}
	s.config, err = decode(data, func(path string) ([]byte, error) {
		name, err := private.within(path)
		if err != nil {
			return nil, err
		}
		data, err := private.read(name)
		s.files[filepath.Join(private.path, name)] = data
		return data, err
	})
	return err
}

// decode turns a kubeconfig that passes judgement into a configuration.
func decode(data []byte, read func(path string) ([]byte, error)) (*clientcmdapi.Config, error) {
	var written clientcmdv1.Config
	if err := yaml.UnmarshalStrict(data, &written); err != nil {
		return nil, fmt.Errorf("it is no kubeconfig as kinproc writes it: %w", err)
	}
	return judge(&written, read)
}
