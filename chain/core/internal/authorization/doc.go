// Package authorization declares the resources of authorization.k8s.io: reviews of what somebody may do. They are not stored.
package authorization
