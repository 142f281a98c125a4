// Package storagemigration declares the kind of storagemigration.k8s.io, which requests that
// objects are rewritten in their storage version. There is no built-in controller that performs the
// migration.
package storagemigration
