// Package nodeselectors validates node selectors and node labels.
package nodeselectors
