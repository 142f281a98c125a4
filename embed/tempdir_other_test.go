//go:build !unix

package embed_test

import (
	"os"
	"testing"
)

// ofOthers makes nothing: the directory for temporary files is each user's own.
func ofOthers(*testing.T, func(string, os.FileMode) string) []string { return nil }
