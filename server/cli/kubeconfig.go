package cli

import (
	"errors"
	"fmt"
	"io/fs"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kinproc/kinproc/server/internal/auth/pki"
)

// kubeconfigUser is the administrator's entry among the users of a kubeconfig that may hold others.
const kubeconfigUser = "kinproc"

// loadKubeconfig reads the file that entries are to be added to. It is empty if it does not exist.
func loadKubeconfig(path string) (*clientcmdapi.Config, error) {
	config, err := clientcmd.LoadFromFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return clientcmdapi.NewConfig(), nil
	}
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: read %s: %w; name a kubeconfig to add to, or a file that does not exist", path, err)
	}
	return config, nil
}

// writeKubeconfig adds the entries of ours to those that were there, which may be of other clusters, and makes them the current ones.
func writeKubeconfig(path string, existing, ours *clientcmdapi.Config) error {
	for name, cluster := range ours.Clusters {
		existing.Clusters[name] = cluster
	}
	for _, user := range ours.AuthInfos {
		existing.AuthInfos[kubeconfigUser] = user
	}
	for name, context := range ours.Contexts {
		context.AuthInfo = kubeconfigUser
		existing.Contexts[name] = context
	}
	existing.CurrentContext = ours.CurrentContext
	if err := pki.WriteKubeconfig(path, existing); err != nil {
		return fmt.Errorf("--kubeconfig: %w; name a file in a directory that exists and can be written to", err)
	}
	return nil
}
