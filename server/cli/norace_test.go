//go:build !race

package cli_test

// slowdown is by how much limits of time are more generous.
const slowdown = 1
