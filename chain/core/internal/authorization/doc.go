// Package authorization declares the resources of authorization.k8s.io: reviews of what a user may
// do. They are not stored.
package authorization
