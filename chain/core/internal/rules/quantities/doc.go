// Package quantities validates names and quantities of resources, such as cpu.
package quantities
