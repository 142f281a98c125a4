// Package authentication declares the resources of authentication.k8s.io: reviews of tokens and of
// the requesting user. They are not stored.
package authentication
