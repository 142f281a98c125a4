// Package auth authenticates requests ([Authentication]) and authorizes them ([Authorization]). Its
// subpackages are pki (certificates and keys), serviceaccount (tokens), rbacauthorizer (roles) and
// nodeauthorizer (kubelets).
package auth
