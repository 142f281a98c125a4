// Package horizontalpodautoscalers sets the number of replicas of workloads by metrics, as the
// controller of kube-controller-manager does.
//
// Metrics come from the API groups metrics.k8s.io, custom.metrics.k8s.io and
// external.metrics.k8s.io if somebody serves them. Without metrics, the number of replicas is only
// kept within its bounds.
package horizontalpodautoscalers
