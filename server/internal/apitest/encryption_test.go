package apitest

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest"
)

// encrypted is a configuration in which secrets are encrypted with secretbox and config maps with
// AES-CBC, by a key of a name.
func encrypted(key string) []byte {
	secret := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte(key[:1]), 32))
	return fmt.Appendf(nil, `
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers: [{secretbox: {keys: [{name: %s, secret: %s}]}}, {identity: {}}]
- resources: [configmaps]
  providers: [{aescbc: {keys: [{name: %s, secret: %s}]}}]
`, key, secret, key, secret)
}

func stored(t *testing.T, etcd *clientv3.Client, key string) string {
	t.Helper()
	found, err := etcd.Get(t.Context(), key)
	if err != nil || len(found.Kvs) != 1 {
		t.Fatalf("%s: %v (%v)", key, found, err)
	}
	return string(found.Kvs[0].Value)
}

func TestEncryption(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	file := writeFile(t, "encryption.yaml", encrypted("abc"))
	options := func(o *server.Options) {
		o.DataDir, o.EncryptionProviderConfig, o.ListenEtcd = dir, file, "127.0.0.1:0"
	}
	t.Run("write", func(t *testing.T) {
		s := servertest.Run(t, options)
		client := kubernetes.NewForConfigOrDie(s.RESTConfig()).CoreV1()
		_, err := client.Secrets("default").Create(t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: "s"}, StringData: map[string]string{"k": "elephant"},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		etcd := etcdClient(t, s, etcdTLS(t, s))
		for key, prefix := range map[string]string{
			"/registry/secrets/default/s": "k8s:enc:secretbox:v1:abc:",
			// the first objects too
			"/registry/configmaps/kube-system/extension-apiserver-authentication": "k8s:enc:aescbc:v1:abc:",
			"/registry/namespaces/default":                                        "k8s\x00",
		} {
			if value := stored(t, etcd, key); !strings.HasPrefix(value, prefix) ||
				strings.Contains(value, "elephant") {
				t.Errorf("%s is stored as %q", key, value)
			}
		}
		if _, err := s.Snapshot(t.Context()); err == nil {
			t.Error("a snapshot would need the key")
		}
	})
	t.Run("read", func(t *testing.T) {
		s := servertest.Run(t, options)
		client := kubernetes.NewForConfigOrDie(s.RESTConfig()).CoreV1()
		secret, err := client.Secrets("default").Get(t.Context(), "s", metav1.GetOptions{})
		if err != nil || string(secret.Data["k"]) != "elephant" {
			t.Errorf("%v: %v", secret, err)
		}
		maps, err := client.ConfigMaps("kube-system").List(t.Context(), metav1.ListOptions{})
		if err != nil || len(maps.Items) == 0 {
			t.Errorf("%v: %v", maps, err)
		}
	})
}

func TestEncryptionReload(t *testing.T) {
	t.Parallel()
	file := writeFile(t, "encryption.yaml", encrypted("abc"))
	s := servertest.Run(t, func(o *server.Options) {
		o.EncryptionProviderConfig, o.EncryptionProviderConfigAutomaticReload = file, true
		o.ListenEtcd = "127.0.0.1:0"
	})
	etcd := etcdClient(t, s, etcdTLS(t, s))
	secrets := kubernetes.NewForConfigOrDie(s.RESTConfig()).CoreV1().Secrets("default")
	write := func(ctx context.Context, prefix string) error {
		made, err := secrets.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "s"},
		}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		value := stored(t, etcd, "/registry/secrets/default/"+made.Name)
		if !strings.HasPrefix(value, prefix) {
			return fmt.Errorf("it is stored as %q", value)
		}
		return nil
	}
	if err := write(t.Context(), "k8s:enc:secretbox:v1:abc:"); err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(encrypted("bcd")), "{identity: {}}",
		strings.TrimSpace(`{secretbox: {keys: [{name: abc, secret: `+
			base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("a"), 32))+`}]}}`), 1)
	if err := os.WriteFile(file, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a changed file", func() error {
		return write(t.Context(), "k8s:enc:secretbox:v1:bcd:")
	})
	if _, err := secrets.List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("with both keys: %v", err)
	}
}

func TestEncryptionRefused(t *testing.T) {
	t.Parallel()
	s, err := server.New(server.Options{
		EncryptionProviderConfig: writeFile(t, "encryption.yaml", []byte("kind: Nonsense")),
	})
	if err != nil {
		t.Fatal(err)
	}
	err = s.Start(t.Context())
	if err == nil || !strings.Contains(err.Error(), "Options.EncryptionProviderConfig: ") {
		t.Error(err)
	}
}
