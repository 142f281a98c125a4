// Package apiserverinternal declares the group internal.apiserver.k8s.io, off by default: the versions in which API servers store things.
// Nothing here writes them.
package apiserverinternal
