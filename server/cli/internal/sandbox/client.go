package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kinproc/kinproc/server/cli/internal/output"
)

// ClientConfig reads the named kubeconfig or, if none is named, the one of the working directory's
// sandbox.
func ClientConfig(kubeconfig string) (*rest.Config, error) {
	config, _, err := ClientConfigIn(kubeconfig)
	return config, err
}

// ClientConfigIn is like ClientConfig, and returns the namespace of the kubeconfig too.
func ClientConfigIn(kubeconfig string) (config *rest.Config, namespace string, err error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	source := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil)
	if kubeconfig == "" && os.Getenv(clientcmd.RecommendedConfigPathEnvVar) == "" {
		s, err := Find(".")
		if err != nil {
			return nil, "", err
		}
		if s.Foreign != nil {
			return nil, "", s.Foreign
		}
		if s.Stopped {
			return nil, "", s.NotRunning()
		}
		source = clientcmd.NewDefaultClientConfig(*s.Config, nil)
	}
	config, err = source.ClientConfig()
	if err != nil {
		return nil, "", fmt.Errorf("%w; start a sandbox here, or name the kubeconfig of one with "+
			"--kubeconfig", explainKubeconfig(kubeconfig, err))
	}
	namespace, _, err = source.Namespace()
	return config, namespace, err
}

// explainKubeconfig returns why a kubeconfig, or those of KUBECONFIG, leads to no server.
func explainKubeconfig(path string, err error) error {
	name := "--kubeconfig: " + path
	if path == "" {
		path = os.Getenv(clientcmd.RecommendedConfigPathEnvVar)
		name = "KUBECONFIG: " + path
	}
	info, problem := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s does not exist", name)
	case problem == nil && info.IsDir():
		return fmt.Errorf("%s is a directory", name)
	case clientcmd.IsEmptyConfig(err):
		return fmt.Errorf("%s has no context that leads to a server", name)
	case errors.Is(err, fs.ErrPermission):
		return output.Unreadable(name, err)
	}
	return fmt.Errorf("%s is not a usable kubeconfig: %w", name, err)
}
