// Package serviceips repairs the reservations of cluster IPs and node ports that a killed process
// may have left inconsistent.
//
// kube-apiserver repairs them every few minutes. Since nothing goes wrong while servers run, this
// package repairs them at start: once if the server has its etcd to itself, and otherwise a second
// time after a grace period.
package serviceips
