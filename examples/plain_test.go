package examples_test

import (
	"crypto/tls"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kinproc/kinproc/examples/kubectl"
	"github.com/kinproc/kinproc/server/servertest"
)

const hello = `
apiVersion: plain.example.com/v1
kind: Greeting
metadata: {name: hello, namespace: default}
spec: {text: %}
`

func TestPlain(t *testing.T) {
	t.Parallel()
	k := kubectl.New(t, servertest.Run(t, patient))
	proxyCA := filepath.Join(t.TempDir(), "ca.crt")
	ca := k.Run("get", "configmap", "-n", "kube-system", "extension-apiserver-authentication",
		"-o", `jsonpath={.data.requestheader-client-ca-file}`)
	if err := os.WriteFile(proxyCA, []byte(ca), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, t.TempDir(), "plain", "-listen", "localhost:0",
		"-requestheader-client-ca-file", proxyCA)
	k.Run("apply", "-f", p.registration())
	const service = "apiservice/v1.plain.example.com"
	k.Run("wait", "--for=condition=Available", service, "--timeout=60s")
	p.await(k, "/apis/plain.example.com/v1/greetings")

	file := filepath.Join(t.TempDir(), "greeting.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(strings.Replace(hello, "%", text, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("Hello")
	k.Run("create", "-f", file)
	if _, err := k.Try("create", "-f", file); err == nil ||
		!strings.Contains(err.Error(), "already exists") {
		t.Errorf("create again: %v", err)
	}
	write("Ahoy")
	k.Run("replace", "-f", file)
	if got := k.Run("get", "greetings", "-o", "jsonpath={.items[*].spec.text}"); got != "Ahoy" {
		t.Errorf("greeting: %q", got)
	}
	if got := k.Run("get", "greeting", "hello"); !strings.HasPrefix(got, "NAME") ||
		!strings.Contains(got, "hello") {
		t.Errorf("kubectl get prints %q", got)
	}
	k.Run("delete", "greeting", "hello")
	if got := k.Run("get", "greetings", "-A", "-o", "name"); got != "" {
		t.Errorf("%q exists after the deletion", got)
	}

	// A request that bypasses the aggregator is rejected.
	client := &http.Client{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
	}
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		"https://localhost:"+k.Run("get", service, "-o", "jsonpath={.spec.service.port}")+"/apis", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("X-Remote-User", "admin")
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a client certificate: %s", response.Status)
	}
}
