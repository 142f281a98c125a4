// Package storagemigration declares the kind of storagemigration.k8s.io, which requests that
// objects are rewritten in their storage version. A control loop does that.
package storagemigration
