//go:build race

package cli_test

// slowdown is by how much limits of time are more generous: the race detector makes everything slower.
const slowdown = 5
