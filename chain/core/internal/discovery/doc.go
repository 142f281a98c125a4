// Package discovery declares the kinds of the group discovery.k8s.io, one file per kind.
package discovery
