// Package storagemigration declares the kind of storagemigration.k8s.io, which asks for objects to be rewritten in their storage version.
// No built-in control loop acts on it.
package storagemigration
