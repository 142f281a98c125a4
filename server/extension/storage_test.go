package extension_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/chain/kind"
	"github.com/kinproc/kinproc/embed"
	"github.com/kinproc/kinproc/server/extension"
	"github.com/kinproc/kinproc/server/servertest"
)

// masters returns the configuration of a client of a server with this storage, which talks to the
// server itself.
func masters(t *testing.T, storage extension.Storage) (config *rest.Config, stop func()) {
	t.Helper()
	plane := servertest.Run(t, servertest.WithoutControllers)
	s, stop := start(t, extension.Options{RESTConfig: plane.RESTConfig(), Storage: storage})
	user, err := plane.User("ann", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	config = direct(s, "")
	config.CertData, config.KeyData = user.CertData, user.KeyData
	return config, stop
}

// restarts checks that objects outlast a restart of the server.
func restarts(t *testing.T, storage extension.Storage) {
	t.Helper()
	config, stop := masters(t, storage)
	client := rooms(t, config, chatV2)
	for _, name := range []string{"a", "b"} {
		if _, err := client.Create(t.Context(), room(name, "news"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := client.Delete(t.Context(), "b", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	before, err := client.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stop()

	config, _ = masters(t, storage)
	after, err := rooms(t, config, chatV2).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(after.Items) != 1 || after.Items[0].GetUID() != before.Items[0].GetUID() {
		t.Fatalf("after the restart: %v, %v, want what was before: %v", after, err, before)
	}
	if after.GetResourceVersion() < before.GetResourceVersion() {
		t.Errorf("the resource version went back from %s to %s",
			before.GetResourceVersion(), after.GetResourceVersion())
	}
}

func TestFiles(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "rooms")
	restarts(t, extension.Files(dir))
	file := filepath.Join(dir, "chat.example.com", "rooms", "default", "a.json")
	data, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(data), `"topic":"news"`) {
		t.Errorf("the file is %s, %v", data, err)
	}

	// The server of restarts still runs.
	_, err = extension.New(extension.Options{
		Groups: []kind.Group{chat()}, RESTConfig: &rest.Config{}, Storage: extension.Files(dir),
	})
	if err == nil || !strings.Contains(err.Error(), "another server uses it") {
		t.Errorf("a second server in the directory: %v", err)
	}
}

// A file that cannot be read is an error that names the file.
func TestBadFiles(t *testing.T) {
	t.Parallel()
	for name, content := range map[string]string{
		"cut":   `{"apiVersion":"chat.example.com/v2","kind":"Room","meta`,
		"other": `{"apiVersion":"chat.example.com/v9","kind":"Room"}`,
		"empty": ``,
	} {
		dir := t.TempDir()
		file := filepath.Join(dir, "chat.example.com", "rooms", "default", name+".json")
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := extension.New(extension.Options{
			Groups: []kind.Group{chat()}, RESTConfig: &rest.Config{}, Storage: extension.Files(dir),
		})
		if err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v, want an error that names the file", name, err)
		}
	}
}

func TestEtcd(t *testing.T) {
	t.Parallel()
	e, err := embed.Start(t.Context(), embed.Options{Ephemeral: true, ListenClient: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	restarts(t, extension.Etcd(extension.EtcdOptions{
		Endpoints: e.Endpoints(), Prefix: "chat",
	}))
	got, err := e.Client().Get(t.Context(), "/chat/chat.example.com/rooms/default/a")
	if err != nil || got.Count != 1 {
		t.Errorf("the key in etcd: %v, %v", got, err)
	}
}
