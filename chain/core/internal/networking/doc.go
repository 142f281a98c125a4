// Package networking declares the kinds of the group networking.k8s.io, one file per kind.
package networking
