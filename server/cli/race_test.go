//go:build race

package cli_test

// slowdown multiplies time limits, because the race detector makes everything slower.
const slowdown = 5
