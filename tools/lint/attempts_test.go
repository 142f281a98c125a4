package main

import (
	"testing"

	"golang.org/x/tools/go/analysis/analysistest"
)

func TestAttempts(t *testing.T) {
	t.Parallel()
	analysistest.Run(t, analysistest.TestData(), attempts, "a")
}
