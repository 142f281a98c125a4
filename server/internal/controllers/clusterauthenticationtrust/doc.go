// Package clusterauthenticationtrust keeps the config map kube-system/extension-apiserver-authentication, from which extension API servers
// learn which client certificates to accept and which proxies to believe. Kube-apiserver has the same loop.
package clusterauthenticationtrust
