//go:build !race

package main

// slowdown is by how much limits of time are more generous.
const slowdown = 1
