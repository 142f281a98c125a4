// Package nodeselectors validates node selectors and labels of nodes.
package nodeselectors
