//go:build !race

package cli_test

// slowdown multiplies time limits.
const slowdown = 1
