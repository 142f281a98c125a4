// Package coordination declares the group coordination.k8s.io: leases and, off by default, the candidates for them.
package coordination
