//go:build unix

package cli_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kinproc/kinproc/server/cli"
	"github.com/kinproc/kinproc/server/cli/internal/standin"
)

// assets returns a folder with this test binary under the names that it stands in for.
func assets(t *testing.T) string {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := standin.Fill(dir, program, os.Symlink); err != nil {
		t.Fatal(err)
	}
	return dir
}

// startEtcd starts the stand-in for etcd as a background process of a shell, and returns the URL of
// its health check when it answers. The prefix is a command that starts it, such as nohup.
func startEtcd(t *testing.T, prefix string) (shell *exec.Cmd, health string) {
	t.Helper()
	// Under nohup this process ignores SIGHUP, and so would the programs that it starts.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(hangups) })
	l, err := cli.ListenAside()
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + l.Addr().String()
	l.Close()
	script := prefix + ` "$0" --listen-client-urls "$1" >/dev/null & echo $!; read wait`
	shell = exec.CommandContext(t.Context(), "sh", "-c", script, filepath.Join(assets(t), "etcd"),
		url)
	if _, err := shell.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := shell.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	pid, err := bufio.NewReader(out).ReadString('\n')
	if err != nil && err != io.EOF {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = exec.CommandContext(context.Background(), "kill", "-9", strings.TrimSpace(pid)).Run()
	})
	eventuallyHealthy(t, url+"/health", true)
	return shell, url + "/health"
}

func healthy(t *testing.T, url string) bool {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return false
	}
	defer answer.Body.Close()
	return answer.StatusCode == http.StatusOK
}

func eventuallyHealthy(t *testing.T, url string, want bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, patience, true,
		func(context.Context) (bool, error) { return healthy(t, url) == want, nil })
	if err != nil {
		t.Fatalf("%s: healthy is still %t", url, !want)
	}
}

func kill(t *testing.T, shell *exec.Cmd) {
	t.Helper()
	if err := shell.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = shell.Wait() // it was killed
}

// Nothing is left of a test binary that was killed.
func TestStandInEndsWithItsParent(t *testing.T) {
	t.Parallel()
	shell, health := startEtcd(t, "")
	kill(t, shell)
	eventuallyHealthy(t, health, false)
}

// A program that was detached on purpose outlives its parent.
func TestDetachedStandInOutlivesItsParent(t *testing.T) {
	t.Parallel()
	shell, health := startEtcd(t, "nohup")
	attached, ended := startEtcd(t, "")
	kill(t, shell)
	kill(t, attached)
	eventuallyHealthy(t, ended, false) // by then the other one would have ended too
	if !healthy(t, health) {
		t.Error("nohup etcd ended with its parent")
	}
}
