// Package kubernetesservice keeps the service default/kubernetes, by which workloads find the API server, with its Endpoints and
// EndpointSlice: what is deleted or changed is put right within ten seconds, as by kube-apiserver.
//
// Servers that share an etcd hold leases at /registry/masterleases for as long as they live, as kube-apiservers do and together with
// them; the endpoints are the holders.
package kubernetesservice
