// Package clusterauthenticationtrust keeps the config map
// kube-system/extension-apiserver-authentication up to date. It tells extension API servers which
// client certificates to accept and which proxies to trust. kube-apiserver has the same controller.
package clusterauthenticationtrust
