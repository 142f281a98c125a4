// Package disruption keeps the status of PodDisruptionBudgets, which says how many pods may be
// evicted, as the disruption controller of kube-controller-manager does.
//
// The API server takes a disruption from the status with each eviction. It records the pod there
// until this controller has seen that the pod is deleted. A pod that is to be disrupted and is not
// deleted within two minutes counts as available again.
package disruption
