// Package auth finds out who the user of a request is ([Authentication]) and what that user may do
// ([Authorization]). Its parts are in the folders below: pki (certificates and keys), serviceaccount
// (tokens), rbacauthorizer (roles) and nodeauthorizer (kubelets).
package auth
