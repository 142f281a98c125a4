// Package peers tests kinproc with the programs it is meant to work with: the extension API server
// k8s.io/sample-apiserver, a controller-runtime manager, client-go's informers, kubectl, webhooks
// and an etcd cluster. The tests are in this module so that users of kinproc as a library do not
// get their dependencies.
package peers
