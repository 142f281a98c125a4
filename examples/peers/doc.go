// Package peers tests kinproc against the programs that it is made for: the real extension API server k8s.io/sample-apiserver, a
// controller-runtime manager, client-go's informers, kubectl, webhooks. They are here and not beside the server so that what they depend on is
// no library user's.
package peers
