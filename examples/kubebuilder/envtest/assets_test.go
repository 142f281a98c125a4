package controller_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestMain does what a Makefile does in a kubebuilder project, so that go test alone is enough here:
//
//	KUBEBUILDER_ASSETS=$(go tool kinproc envtest-assets) go test ./...
func TestMain(m *testing.M) {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		command := exec.Command("go", "tool", "kinproc", "envtest-assets")
		command.Stderr = os.Stderr
		folder, err := command.Output()
		if err == nil {
			err = os.Setenv("KUBEBUILDER_ASSETS", strings.TrimSpace(string(folder)))
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "go tool kinproc envtest-assets:", err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}
