package servertest

import (
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Kubeconfig writes a client configuration to a kubeconfig file, for programs that the test runs,
// and returns the path of the file, which is removed when the test ends. A transport of the
// configuration's own, such as a Dial function, is not in the file.
func Kubeconfig(t TB, config *rest.Config) string {
	t.Helper()
	dir, err := tempDir(t)
	file := filepath.Join(dir, "kubeconfig")
	if err == nil {
		err = clientcmd.WriteToFile(*kubeconfig(config), file)
	}
	if err != nil {
		t.Fatalf("servertest: kubeconfig: %v", err)
	}
	return file
}

func kubeconfig(config *rest.Config) *clientcmdapi.Config {
	const name = "servertest"
	k := clientcmdapi.NewConfig()
	k.Clusters[name] = &clientcmdapi.Cluster{
		Server:                   config.Host,
		TLSServerName:            config.ServerName,
		InsecureSkipTLSVerify:    config.Insecure,
		CertificateAuthority:     config.CAFile,
		CertificateAuthorityData: config.CAData,
		DisableCompression:       config.DisableCompression,
	}
	k.AuthInfos[name] = &clientcmdapi.AuthInfo{
		ClientCertificate:     config.CertFile,
		ClientCertificateData: config.CertData,
		ClientKey:             config.KeyFile,
		ClientKeyData:         config.KeyData,
		Token:                 config.BearerToken,
		TokenFile:             config.BearerTokenFile,
		Username:              config.Username,
		Password:              config.Password,
		Impersonate:           config.Impersonate.UserName,
		ImpersonateUID:        config.Impersonate.UID,
		ImpersonateGroups:     config.Impersonate.Groups,
		ImpersonateUserExtra:  config.Impersonate.Extra,
		AuthProvider:          config.AuthProvider,
		Exec:                  config.ExecProvider,
	}
	k.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	k.CurrentContext = name
	return k
}
