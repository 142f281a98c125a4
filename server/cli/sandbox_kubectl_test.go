package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kinproc/kinproc/server/cli/internal/sandbox"
	"github.com/kinproc/kinproc/server/internal/auth/pki"
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
	must(t, os.WriteFile(filepath.Join(dir, sandbox.KubeconfigName), []byte(kubeconfig), 0o600))
	return dir
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestSandboxHoldsWhatKinprocWrites(t *testing.T) {
	t.Parallel()
	for name, kubeconfig := range map[string]string{
		"written":   written(trustedCluster, trustedUser, "", ""),
		"namespace": written(trustedCluster, trustedUser, "namespace: web", ""),
		"extensions": written(trustedCluster+", extensions: [{name: a, extension: {b: c}}]", trustedUser,
			"", "extensions: [{name: d, extension: 1}]"),
		"localhost": written(`server: "https://localhost:1/", certificate-authority-data: Y2E=`,
			trustedUser, "", ""),
		"IPv6": written(`server: "https://[::1]:1", certificate-authority-data: Y2E=`, trustedUser, "",
			""),
		"false": written(trustedCluster+", insecure-skip-tls-verify: false", trustedUser,
			"", "preferences: {}"),
		"file": written(`server: "https://127.0.0.1:6443", certificate-authority: pki/ca.crt`,
			trustedUser, "", ""),
		"dotted": written(`server: "https://127.0.0.1:6443", certificate-authority: ./pki/../pki//ca.crt`,
			trustedUser, "", ""),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := sandbox.Find(filepath.Dir(sandboxDir(t, kubeconfig)))
			must(t, err)
			config, err := kubectlConfig(s)
			must(t, err)
			tls := config.TLSClientConfig
			if tls.CAFile != "" || len(tls.CAData) == 0 || string(tls.CertData) != "cert" ||
				string(tls.KeyData) != "key" {
				t.Errorf("kubectl would use %+v", tls)
			}
		})
	}
}

// kubectlConfig returns the client configuration that kubectl uses for a sandbox.
func kubectlConfig(s *sandbox.Sandbox) (*rest.Config, error) {
	flags := genericclioptions.NewConfigFlags(true)
	s.Foreign = nil // the kubeconfigs of these tests have no MAC
	guard(flags, s)
	*flags.KubeConfig = s.Kubeconfig
	return flags.ToRESTConfig()
}

// TestKubectlRefusesSandbox has sandboxes that are not trusted, for each kind of reason. kubectl
// must not use them either when the caller names another kubeconfig.
func TestKubectlRefusesSandbox(t *testing.T) {
	t.Parallel()
	for name, kubeconfig := range map[string]string{
		"a field": written(trustedCluster, "token: abc", "", ""),
		"another server": written(`server: "https://192.0.2.1:6443", certificate-authority-data: Y2E=`,
			trustedUser, "", ""),
		// Neither must look like a sandbox that is not there.
		"a missing file": written(trustedCluster, "client-key: nope", "", ""),
		"no file":        "",
		"a file outside": written(trustedCluster, "client-key: ../key", "", ""),
		"no kubeconfig":  "}{",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := sandboxDir(t, kubeconfig)
			if name == "no file" {
				must(t, os.Remove(filepath.Join(dir, sandbox.KubeconfigName)))
				must(t, os.Mkdir(filepath.Join(dir, sandbox.KubeconfigName), 0o700))
			}
			dir = filepath.Dir(dir)
			for _, args := range [][]string{
				{"get", "ns"}, {"exec", "pod", "--", "kubectl", "--kubeconfig=other"},
			} {
				if s, err := sandboxForKubectl(dir, args); err == nil {
					t.Errorf("kubectl %v would use %s", args, s.Kubeconfig)
				}
			}
			for _, args := range [][]string{
				{"get", "ns", "--kubeconfig", "other"}, {"--kubeconfig=other", "get", "ns"},
			} {
				if s, err := sandboxForKubectl(dir, args); err != nil || s.Kubeconfig != os.DevNull {
					t.Errorf("kubectl %v: %v, %v", args, s, err)
				}
			}
		})
	}
}

// TestKubectlUsesWhatWasJudged replaces the directory after it was checked.
func TestKubectlUsesWhatWasJudged(t *testing.T) {
	t.Parallel()
	marker := filepath.Join(t.TempDir(), "executed")
	attack := written(trustedCluster, fmt.Sprintf(
		"exec: {apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, "+
			"command: touch, args: [%q]}", marker), "", "")
	for name, replaced := range map[string]string{
		"a command": attack,
		"another server": written(`server: "https://127.0.0.1:1", certificate-authority-data: Y2E=`,
			trustedUser, "", ""),
		"nothing": "",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := sandboxDir(t, written(trustedCluster, "", "", ""))
			s, err := sandbox.Find(filepath.Dir(dir))
			must(t, err)
			must(t, os.Rename(dir, dir+".away"))
			must(t, os.Mkdir(dir, 0o755))
			must(t, os.WriteFile(s.Kubeconfig, []byte(replaced), 0o644))
			config, err := kubectlConfig(s)
			if name == "nothing" && err != nil {
				return // an empty file is harmless
			}
			must(t, err)
			client, err := rest.HTTPClientFor(config)
			must(t, err)
			resp, err := client.Get("https://127.0.0.1:1/api")
			if err == nil {
				resp.Body.Close()
			}
			if err == nil || !strings.Contains(err.Error(), "was replaced while it was read") {
				t.Errorf("the request was sent: %v", err)
			}
			if _, err := os.Stat(marker); err == nil {
				t.Error("the command was run")
			}
		})
	}
}

// TestKubectlUsesNoSandboxThatCameLater creates the sandbox after kubectl has looked for one. It
// must not be used.
func TestKubectlUsesNoSandboxThatCameLater(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), ".kinproc")
	s, err := sandboxForKubectl(filepath.Dir(dir), nil)
	must(t, err)
	must(t, os.Mkdir(dir, 0o700))
	must(t, os.WriteFile(s.Kubeconfig, []byte(written(trustedCluster, "token: abc", "", "")), 0o600))
	config, err := kubectlConfig(s)
	must(t, err)
	if _, refused := config.Transport.(refusal); !refused || config.BearerToken != "" {
		t.Errorf("kubectl would use %v", config)
	}
}

// TestWrittenKubeconfigIsTrusted checks that the kubeconfig written by a start is trusted and used
// by kubectl.
func TestWrittenKubeconfigIsTrusted(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), ".kinproc")
	must(t, os.Mkdir(dir, 0o700))
	user := &clientcmdapi.AuthInfo{ClientCertificateData: []byte("cert"), ClientKeyData: []byte("key")}
	_, err := sandbox.EntriesOf("app", dir).Write(
		pki.Kubeconfig("kinproc", "https://127.0.0.1:6443", []byte("ca"), pki.AdminUser, user))
	must(t, err)
	s, err := sandbox.Find(filepath.Dir(dir))
	must(t, err)
	used, err := kubectlConfig(s)
	must(t, err)
	if used.Host != "https://127.0.0.1:6443" || string(used.CAData) != "ca" ||
		string(used.KeyData) != "key" {
		t.Errorf("kubectl would use %+v", used)
	}
}
