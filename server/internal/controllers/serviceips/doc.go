// Package serviceips repairs the reservations of cluster IPs and node ports, which a process that was killed may have left wrong.
//
// kube-apiserver repairs every few minutes for as long as it lives. Nothing goes wrong while servers run, so that here it happens at
// start: once where the server has etcd for itself, and otherwise once more a little later.
package serviceips
