package pki

import (
	"fmt"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Kubeconfig makes a kubeconfig with one cluster, one user and one context that joins them and is the current one. The cluster and the
// context are called name; ca is what the server's certificate is checked against.
func Kubeconfig(name, server string, ca []byte, user string, auth *clientcmdapi.AuthInfo) *clientcmdapi.Config {
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	config.AuthInfos[user] = auth
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: user}
	config.CurrentContext = name
	return config
}

// AuthInfo is the pair as a kubeconfig's user.
func (p Pair) AuthInfo() *clientcmdapi.AuthInfo {
	return &clientcmdapi.AuthInfo{ClientCertificateData: p.Cert, ClientKeyData: p.Key}
}

// WriteKubeconfig replaces the file at path in one step. Only its owner can read it.
func WriteKubeconfig(path string, config *clientcmdapi.Config) error {
	data, err := clientcmd.Write(*config)
	if err != nil {
		return fmt.Errorf("encode the kubeconfig: %w", err)
	}
	return writeFile(path, data)
}
