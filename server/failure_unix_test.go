//go:build unix

package server_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// TestFailsWithItsDirectory removes the data directory of a control plane. The control plane
// reports the failure, stops serving requests, and can be stopped.
func TestFailsWithItsDirectory(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	s, _ := startIn(t, dir)
	client := kubernetes.NewForConfigOrDie(s.RESTConfig())
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	select {
	case <-s.Failed():
		if err := s.Err(); err == nil || !strings.Contains(err.Error(), "data directory was removed") {
			t.Errorf("the control plane failed with %v", err)
		}
	case <-time.After(stopBound):
		t.Fatal("the control plane did not fail")
	}
	if _, err := client.CoreV1().Namespaces().Get(t.Context(), "default",
		metav1.GetOptions{}); err == nil {
		t.Error("the control plane still serves requests")
	}
	ctx, cancel := context.WithTimeout(t.Context(), stopBound)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		t.Errorf("stop: %v", err)
	}
}
