// Package coordination declares the group coordination.k8s.io: leases and lease candidates, which
// are off by default.
package coordination
