// Package auth says who the user of a request is ([Authentication]) and what they may do ([Authorization]), out of the parts in the
// folders below: pki (certificates and keys), serviceaccount (tokens), rbac (roles) and node (kubelets).
package auth
