//go:build !unix

package embed_test

import (
	"os"
	"testing"
)

// ofOthers creates nothing: on these platforms every user has a private directory for temporary
// files.
func ofOthers(*testing.T, func(string, os.FileMode) string) []string { return nil }
