// Package node declares the group node.k8s.io: runtime classes.
package node
