//go:build unix

package simulated

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// A log file that is a named pipe, to which nobody writes, is refused at once. Opened as files are,
// it would take a thread for ever.
func TestAttackPipeAsLog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := (&Kubelet{LogDir: dir}).Logs(t.Context(), logging(time.Hour, "log-file", "pipe"), "c",
			&corev1.PodLogOptions{})
		done <- err
	}()
	select {
	case err := <-done:
		if !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("the log is %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("the request waits for somebody who writes to the pipe")
		writer, err := os.OpenFile(pipe, os.O_WRONLY|syscall.O_NONBLOCK, 0) // lets it end
		if err != nil {
			t.Fatal(err)
		}
		writer.Close()
		<-done
	}
}
