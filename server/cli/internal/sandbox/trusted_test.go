package sandbox

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kinproc/kinproc/chain/documents"
	"github.com/kinproc/kinproc/server/cli/internal/private"
)

const (
	trustedCluster = `server: "https://127.0.0.1:6443", certificate-authority-data: Y2E=`
	trustedUser    = `client-certificate-data: Y2VydA==, client-key-data: a2V5`
)

// written returns a kubeconfig with the given fields of its cluster, user and context, and at the
// top level.
func written(cluster, user, context, top string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {%s}}]
users: [{name: u, user: {%s}}]
contexts: [{name: x, context: {cluster: c, user: u, %s}}]
current-context: x
%s
`, cluster, user, context, top)
}

// sandboxDir creates a data directory with a kubeconfig and a certificate file.
func sandboxDir(t testing.TB, kubeconfig string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), ".kinproc")
	must(t, os.MkdirAll(filepath.Join(dir, "pki"), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, "pki", "ca.crt"), []byte("authority"), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, KubeconfigName), []byte(kubeconfig), 0o600))
	return dir
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestSandboxRefusesByName(t *testing.T) {
	t.Parallel()
	cluster := func(more string) string {
		return written(trustedCluster+", "+more, trustedUser, "", "")
	}
	user := func(more string) string { return written(trustedCluster, trustedUser+", "+more, "", "") }
	server := func(url string) string {
		return written(fmt.Sprintf("server: %q, certificate-authority-data: Y2E=", url), trustedUser, "",
			"")
	}
	for name, c := range map[string]struct{ kubeconfig, want string }{
		"exec": {
			user(`exec: {apiVersion: client.authentication.k8s.io/v1, command: sh, interactiveMode: Never}`),
			`user "u" has exec,`,
		},
		"empty exec":    {user(`exec: {}`), `user "u" has exec,`},
		"auth-provider": {user(`auth-provider: {name: oidc}`), `user "u" has auth-provider,`},
		"token":         {user(`token: abc`), `user "u" has token,`},
		"tokenFile":     {user(`tokenFile: /etc/passwd`), `user "u" has tokenFile,`},
		"username":      {user(`username: jane`), `user "u" has username,`},
		"password":      {user(`password: secret`), `user "u" has password,`},
		"as":            {user(`as: jane`), `user "u" has as,`},
		"as-uid":        {user(`as-uid: "1"`), `user "u" has as-uid,`},
		"as-groups":     {user(`as-groups: [a]`), `user "u" has as-groups,`},
		"as-user-extra": {user(`as-user-extra: {a: [b]}`), `user "u" has as-user-extra,`},
		"proxy-url":     {cluster(`proxy-url: "http://proxy:3128"`), `cluster "c" has proxy-url,`},
		"insecure": {
			cluster(`insecure-skip-tls-verify: true`), `cluster "c" has insecure-skip-tls-verify,`,
		},
		"server name": {
			cluster(`tls-server-name: other`), `cluster "c" has the tls-server-name "other",`,
		},
		"compression": {cluster(`disable-compression: true`), `cluster "c" has disable-compression,`},
		"preferences": {
			written(trustedCluster, trustedUser, "", "preferences: {colors: true}"), "it has preferences,",
		},
		"unknown field": {user(`shell: sh`), `unknown field "shell"`},
		"unknown list": {
			written(trustedCluster, trustedUser, "", "plugins: []"), `unknown field "plugins"`,
		},
		"other case":    {user(`Exec: {command: sh}`), `user "u" has exec,`},
		"key twice":     {user(`client-key-data: a2V5`), `already`},
		"another host":  {server("https://192.0.2.1:6443"), "is not at a loopback address"},
		"another name":  {server("https://localhost.example:6443"), "is not at a loopback address"},
		"all addresses": {server("https://0.0.0.0:6443"), "is not at a loopback address"},
		"short address": {server("https://127.1:6443"), "is not at a loopback address"},
		"no TLS":        {server("http://127.0.0.1:6443"), "is not of the form https://address:port"},
		"credentials": {
			server("https://a:b@127.0.0.1:6443"), "is not of the form https://address:port",
		},
		"path": {
			server("https://127.0.0.1:6443/elsewhere"), "is not of the form https://address:port",
		},
		"socket":       {server("unix:///run/docker.sock"), "is not at a loopback address"},
		"no server":    {server(""), "is not at a loopback address"},
		"no URL":       {server("https://[::1"), "is not a URL"},
		"outside":      {user(`client-key: ../../id_rsa`), "is outside of"},
		"absolute":     {user(`client-key: /etc/ssl/key`), "is outside of"},
		"missing":      {user(`client-key: nope`), `client-key of user "u":`},
		"directory":    {user(`client-key: pki`), "is a directory, not a file"},
		"below a file": {user(`client-key: kubeconfig/key`), "is a file, not a directory"},
		"two of a name": {
			strings.Replace(user(""), "users: [", "users: [{name: u, user: {}}, ", 1),
			`user "u" is listed twice`,
		},
		"another kind": {
			strings.Replace(user(""), "kind: Config", "kind: Secret", 1), `it is of kind "Secret"`,
		},
		"not the current": {
			strings.Replace(user(""), "users: [", "users: [{name: other, user: {exec: {command: sh}}}, ", 1),
			`user "other" has exec,`,
		},
		"garbage":  {"}{", "it is not a kubeconfig"},
		"too long": {strings.Repeat("#\n", private.MaxFile), "has more than 1048576 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := sandboxDir(t, c.kubeconfig)
			wantRefused(t, dir, c.want)
		})
	}
}

func wantRefused(t *testing.T, dir, want string) {
	t.Helper()
	s, err := Find(filepath.Dir(dir))
	if err == nil {
		t.Fatalf("trusted: %v", s.Config)
	}
	if errors.Is(err, ErrNone) || !strings.Contains(err.Error(), want) ||
		!strings.Contains(err.Error(), "name it with --kubeconfig or KUBECONFIG") {
		t.Errorf("%q does not say %q and what to do", err, want)
	}
}

// TestAttackKubeconfig has a kubeconfig that takes gigabytes with its aliases expanded.
func TestAttackKubeconfig(t *testing.T) {
	t.Parallel()
	bomb := []byte("a: &a \"" + strings.Repeat("A", 300_000) + "\"\nb:\n" +
		strings.Repeat("- [*a, *a, *a, *a]\n", 4000))
	file := filepath.Join(t.TempDir(), "file.yaml")
	must(t, os.WriteFile(file, bomb, 0o600))
	for name, read := range map[string]func() error{
		"of the user":       func() error { _, err := loadKubeconfig(file); return err },
		"of data directory": func() error { _, _, err := decode(bomb, os.ReadFile); return err },
	} {
		var tooLarge *documents.TooLargeError
		if err := read(); !errors.As(err, &tooLarge) {
			t.Errorf("%s: got %.300v", name, err)
		}
	}
}

// FuzzSandbox checks that an accepted kubeconfig holds only what kinproc writes.
func FuzzSandbox(f *testing.F) {
	f.Add([]byte(written(trustedCluster, trustedUser, "namespace: web", "")))
	f.Add([]byte(written(trustedCluster, "exec: {command: sh}", "", "")))
	f.Add([]byte(written(`server: "https://[::1]:1/", proxy-url: x`, "as: jane", "",
		"extensions: [{name: a, extension: {}}]")))
	f.Add([]byte(`{"clusters":[{"name":"c","cluster":{"server":"https://localhost"}}],"users":[{"name":"u","user":{"client-key":"a"}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		config, _, err := decode(data, func(string) ([]byte, error) { return nil, os.ErrNotExist })
		if err != nil {
			return
		}
		bare := clientcmdapi.NewConfig()
		bare.CurrentContext = config.CurrentContext
		for name, c := range config.Clusters {
			bare.Clusters[name] = &clientcmdapi.Cluster{
				Server:                   c.Server,
				CertificateAuthorityData: c.CertificateAuthorityData,
			}
			r, err := http.NewRequest(http.MethodGet, c.Server, nil)
			if err != nil || r.URL.Scheme != "https" || r.URL.User != nil ||
				strings.Trim(r.URL.RequestURI(), "/") != "" {
				t.Fatalf("server %q", c.Server)
			}
			if address, err := netip.ParseAddr(r.URL.Hostname()); r.URL.Hostname() != "localhost" &&
				(err != nil || !address.Unmap().IsLoopback()) {
				t.Fatalf("server %q", c.Server)
			}
		}
		for name, u := range config.AuthInfos {
			bare.AuthInfos[name] = &clientcmdapi.AuthInfo{
				ClientCertificateData: u.ClientCertificateData,
				ClientKeyData:         u.ClientKeyData,
			}
		}
		for name, c := range config.Contexts {
			bare.Contexts[name] = &clientcmdapi.Context{
				Cluster:   c.Cluster,
				AuthInfo:  c.AuthInfo,
				Namespace: c.Namespace,
			}
		}
		if !reflect.DeepEqual(config, bare) {
			t.Fatalf("accepted %#v", config)
		}
	})
}
