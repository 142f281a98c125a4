// Package policy declares the group policy: pod disruption budgets. The group's other kind,
// Eviction, is served only as a subresource of pods.
package policy
