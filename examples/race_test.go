//go:build race

package examples_test

// race says whether the test binary has the race detector.
const race = true
