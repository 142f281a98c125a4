package server

import (
	"fmt"

	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"

	"github.com/kinproc/kinproc/server/internal/auth/pki"
)

// RESTConfig returns a client configuration for an administrator, a member of system:masters. It
// has no rate limit. The caller may change it.
func (s *Server) RESTConfig() *rest.Config {
	r := up(s, "RESTConfig")
	if s.options.Network != nil {
		config, err := r.inProcess(r.access.PKI.Admin)
		if err != nil {
			panic(err) // the control plane made the certificate
		}
		return config
	}
	return r.restConfig(r.access.PKI.Admin)
}

// Kubeconfig returns the same access as [Server.RESTConfig], as a kubeconfig.
func (s *Server) Kubeconfig() *clientcmdapi.Config {
	r := up(s, "Kubeconfig")
	keys := r.access.PKI
	config := pki.Kubeconfig("kinproc", r.url(), keys.CA.Cert, pki.AdminUser, keys.Admin.AuthInfo())
	config.Clusters["kinproc"].TLSServerName = r.access.ServerName()
	return config
}

// User returns a client configuration for a user in the given groups, who may do what RBAC allows.
// It returns an error if the name is empty.
func (s *Server) User(name string, groups ...string) (*rest.Config, error) {
	r := up(s, "User")
	pair, err := r.access.PKI.CA.Client(name, groups, 0)
	if err != nil {
		return nil, fmt.Errorf("certificate of user %q: %w", name, err)
	}
	if s.options.Network != nil {
		return r.inProcess(pair)
	}
	return r.restConfig(pair), nil
}

// InProcessConfig is like [Server.User], but its clients call the handlers of the control plane
// directly, without TLS, HTTP/2 or a socket. Requests pass the same filters and are authenticated
// by the same certificate as over the network, and watches stream. A request fails when the control
// plane has stopped.
//
// Connections that are upgraded, as by exec, attach and port-forward, need the network. So do
// programs that read the host, certificates or token from the configuration.
func (s *Server) InProcessConfig(user string, groups ...string) (*rest.Config, error) {
	r := up(s, "InProcessConfig")
	pair, err := r.access.PKI.CA.Client(user, groups, 0)
	if err != nil {
		return nil, fmt.Errorf("certificate of user %q: %w", user, err)
	}
	return r.inProcess(pair)
}

// inProcess returns a configuration for clients that identify themselves with a pair.
func (r *running) inProcess(user pki.Pair) (*rest.Config, error) {
	certificates, err := cert.ParseCertsPEM(user.Cert)
	if err != nil {
		return nil, fmt.Errorf("client certificate: %w", err)
	}
	return &rest.Config{Host: r.url(), Transport: r.requests.As(certificates[0]), QPS: -1}, nil
}

func (r *running) restConfig(user pki.Pair) *rest.Config {
	return &rest.Config{
		Host: r.url(),
		TLSClientConfig: rest.TLSClientConfig{
			CAData: r.access.PKI.CA.Cert, ServerName: r.access.ServerName(),
			CertData: user.Cert, KeyData: user.Key,
		},
		QPS: -1,
	}
}

// EtcdEndpoints returns the URL at which the embedded etcd serves clients outside the process, or
// nil without [Options].ListenEtcd. Clients need the files of [Server.EtcdClientFiles].
//
// Keep out of the keys below Options.EtcdPrefix: the control plane does not expect that somebody
// else writes them. A reset covers all keys.
func (s *Server) EtcdEndpoints() []string {
	if clients := up(s, "EtcdEndpoints").etcdClients; clients != nil {
		return []string{clients.Endpoint}
	}
	return nil
}

// EtcdClientFiles returns the files with which a client of [Server.EtcdEndpoints] trusts etcd and
// identifies itself, such as for the flags --etcd-cafile, --etcd-certfile and --etcd-keyfile of an
// extension API server. They are empty without [Options].ListenEtcd.
func (s *Server) EtcdClientFiles() (ca, cert, key string) {
	if clients := up(s, "EtcdClientFiles").etcdClients; clients != nil {
		return clients.CAFile, clients.CertFile, clients.KeyFile
	}
	return "", "", ""
}
