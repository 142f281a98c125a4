// Package kubernetesservice keeps the service default/kubernetes, through which workloads find the
// API server, with its Endpoints and EndpointSlice. Like kube-apiserver, it restores what is
// deleted or changed within ten seconds.
//
// Servers that share an etcd hold leases at /registry/masterleases while they are alive, in the
// same format as kube-apiserver, so both can be mixed. The endpoints are the addresses of the lease
// holders.
package kubernetesservice
