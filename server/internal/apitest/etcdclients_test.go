package apitest

import (
	"context"
	"crypto/tls"
	"strings"
	"testing"
	"time"

	etcdtransport "go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest"
)

// etcdClient returns a client of the embedded etcd outside the control plane.
func etcdClient(t *testing.T, s *server.Server, config *tls.Config) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: s.EtcdEndpoints(), TLS: config})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

func etcdTLS(t *testing.T, s *server.Server) *tls.Config {
	t.Helper()
	ca, cert, key := s.EtcdClientFiles()
	files := etcdtransport.TLSInfo{TrustedCAFile: ca, CertFile: cert, KeyFile: key}
	config, err := files.ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func TestEtcdClients(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, func(o *server.Options) { o.ListenEtcd = "127.0.0.1:0" })
	client := etcdClient(t, s, etcdTLS(t, s))
	watch := client.Watch(t.Context(), "/other/", clientv3.WithPrefix())
	if _, err := client.Put(t.Context(), "/other/key", "value"); err != nil {
		t.Fatal(err)
	}
	if r := <-watch; len(r.Events) != 1 || string(r.Events[0].Kv.Value) != "value" {
		t.Errorf("watched %+v", r)
	}
	found, err := client.Get(t.Context(), "/registry/namespaces/default")
	if err != nil || len(found.Kvs) != 1 {
		t.Errorf("the namespace default: %v (%v)", found, err)
	}
}

// Nobody reaches etcd without its own client certificate, not even the administrator.
func TestEtcdRefusesOtherClients(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, func(o *server.Options) { o.ListenEtcd = "127.0.0.1:0" })
	own := etcdTLS(t, s)
	admin, err := rest.TLSConfigFor(s.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	without, other := own.Clone(), own.Clone()
	without.Certificates, without.GetClientCertificate = nil, nil
	other.Certificates, other.GetClientCertificate = admin.Certificates, admin.GetClientCertificate
	for name, config := range map[string]*tls.Config{"none": without, "admin": other} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := etcdClient(t, s, config).Get(ctx, "/registry/namespaces/default"); err == nil {
			t.Errorf("a client with the certificate %q may read", name)
		}
	}
}

func TestListenEtcdOptions(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"2379":           `"2379" is not an address with a port`,
		"0.0.0.0:2379":   `"0.0.0.0" is not a loopback address`,
		"127.0.0.1:http": `"http" is not a port`,
	} {
		_, err := server.New(server.Options{ListenEtcd: address})
		if err == nil || !strings.Contains(err.Error(), "Options.ListenEtcd: "+want) {
			t.Errorf("%s: %v", address, err)
		}
	}
	_, err := server.New(server.Options{ListenEtcd: "127.0.0.1:0", ReadOnly: true})
	if err == nil || !strings.Contains(err.Error(), "Options.ReadOnly is set") {
		t.Errorf("read-only: %v", err)
	}
}

// The certificates of a data directory stay, so that clients can go on after a restart.
func TestEtcdClientsAfterRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var config *tls.Config
	for range 2 {
		s := servertest.Run(t, func(o *server.Options) {
			o.ListenEtcd, o.DataDir = "127.0.0.1:0", dir
		})
		if config == nil {
			config = etcdTLS(t, s)
		}
		client := etcdClient(t, s, config)
		if _, err := client.Put(t.Context(), "/other/key", "value"); err != nil {
			t.Fatal(err)
		}
		if err := s.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
