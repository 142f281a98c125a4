package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kinproc/kinproc/server/internal/auth/pki"
)

const (
	// kubeconfigEntry names the administrator's cluster, user and context in a kubeconfig.
	kubeconfigEntry = "kinproc"
	// kubeconfigMark is the name of the extension by which kinproc knows the entries that it wrote.
	kubeconfigMark = "kinproc"
)

// loadKubeconfig reads the file that entries are to be added to. It is empty if it does not exist.
func loadKubeconfig(path string) (*clientcmdapi.Config, error) {
	config, err := clientcmd.LoadFromFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return clientcmdapi.NewConfig(), nil
	}
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: read %s: %w; name a kubeconfig to add to, or a file that does not exist", path, err)
	}
	if kind := othersEntry(config); kind != "" {
		return nil, fmt.Errorf("--kubeconfig: %s has a %s %q that kinproc did not write; name another file, or give the %s another name",
			path, kind, kubeconfigEntry, kind)
	}
	return config, nil
}

// othersEntry is the kind of an entry that has our name and is not ours, or empty if there is none.
func othersEntry(config *clientcmdapi.Config) (kind string) {
	if e := config.Clusters[kubeconfigEntry]; e != nil && e.Extensions[kubeconfigMark] == nil {
		return "cluster"
	}
	if e := config.AuthInfos[kubeconfigEntry]; e != nil && e.Extensions[kubeconfigMark] == nil {
		return "user"
	}
	if e := config.Contexts[kubeconfigEntry]; e != nil && e.Extensions[kubeconfigMark] == nil {
		return "context"
	}
	return ""
}

// addToKubeconfig adds the current context of ours, with its cluster and user, to the file at path
// and makes it the current context there. What else the file holds stays, and a symbolic link to
// the file stays a link.
func addToKubeconfig(path string, ours *clientcmdapi.Config) error {
	config, err := loadKubeconfig(path)
	if err != nil {
		return err
	}
	target, err := followLinks(path)
	if err == nil {
		addEntries(config, ours)
		err = pki.WriteKubeconfig(target, config)
	}
	if err != nil {
		return fmt.Errorf("--kubeconfig: %w; name a file in a directory that exists and can be written to", err)
	}
	return nil
}

func addEntries(config, ours *clientcmdapi.Config) {
	current := ours.Contexts[ours.CurrentContext]
	cluster, user := ours.Clusters[current.Cluster], ours.AuthInfos[current.AuthInfo]
	mark := map[string]runtime.Object{kubeconfigMark: &runtime.Unknown{Raw: []byte(`{"writtenBy":"kinproc"}`), ContentType: runtime.ContentTypeJSON}}
	cluster.Extensions, user.Extensions = mark, mark
	config.Clusters[kubeconfigEntry] = cluster
	config.AuthInfos[kubeconfigEntry] = user
	config.Contexts[kubeconfigEntry] = &clientcmdapi.Context{Cluster: kubeconfigEntry, AuthInfo: kubeconfigEntry, Extensions: mark}
	config.CurrentContext = kubeconfigEntry
}

// maxLinks is Linux's limit.
const maxLinks = 40

// followLinks finds the file that a path leads to, which need not exist.
func followLinks(path string) (string, error) {
	for range maxLinks {
		target, err := os.Readlink(path)
		if err != nil {
			return path, nil // it is no link, or what is wrong with it shows when it is written
		}
		if !filepath.IsAbs(target) {
			// Not cleaned: the directory may be a link itself.
			target = filepath.Dir(path) + string(filepath.Separator) + target
		}
		path = target
	}
	return "", fmt.Errorf("%s: more than %d symbolic links", path, maxLinks)
}
