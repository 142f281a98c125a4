// Package quantities validates the names and quantities of resources such as cpu.
package quantities
