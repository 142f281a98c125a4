package pki

import (
	"fmt"
	"os"
)

// EtcdUser is the name in the client certificate for the embedded etcd.
const EtcdUser = "kinproc-etcd-client"

const etcdAuthority = "kinproc-etcd-ca"

// Etcd holds what etcd and its clients outside the process need to identify each other.
type Etcd struct {
	CA *Authority
	// Serving is etcd's serving certificate.
	Serving Pair
	// Client is the certificate for its clients.
	Client Pair
}

// EnsureEtcd loads the PKI of etcd from a directory. It creates or renews what is missing or about
// to expire, under kubeadm's names except for the client's pair, client.crt and client.key.
func EnsureEtcd(dir string, o Options) (*Etcd, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the directory for certificates: %w", err)
	}
	d := directory{path: dir, create: true}
	ca, err := d.authority("ca", etcdAuthority, o.now)
	if err != nil {
		return nil, err
	}
	e := &Etcd{CA: ca}
	names := []string{"localhost", "127.0.0.1", "::1"}
	for _, l := range []leaf{
		{file: "server", pair: &e.Serving, authority: ca, names: append(names, o.Names...)},
		{file: "client", pair: &e.Client, authority: ca, user: EtcdUser},
	} {
		if *l.pair, err = d.leaf(l); err != nil {
			return nil, err
		}
	}
	return e, nil
}
