// Package policy declares the group policy: pod disruption budgets. Evictions, which are the group's too, are a subresource of pods.
package policy
