package controller_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestMain does what the Makefile of a kubebuilder project does, so that go test is enough here:
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
	// envtest itself waits for 20 s, which is short when other tests keep the machine busy.
	if err := os.Setenv("KUBEBUILDER_CONTROLPLANE_START_TIMEOUT", "2m"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
