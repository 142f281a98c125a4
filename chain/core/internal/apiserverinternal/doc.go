// Package apiserverinternal declares the API group internal.apiserver.k8s.io, which is off by
// default. Its objects record the versions in which API servers store resources. Nothing in kinproc
// writes them.
package apiserverinternal
