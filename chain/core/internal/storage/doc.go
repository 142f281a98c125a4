// Package storage declares the kinds of storage.k8s.io, one file per kind.
package storage
