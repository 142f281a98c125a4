// Package scheduler assigns pods to nodes, as kube-scheduler does with its default configuration.
//
// One goroutine takes pods from a queue, by priority, by namespace in turn, and then by age. For
// each pod it filters the nodes, scores those that are left, and assumes the pod to be on the best
// node while a request binds it. A pod that fits nowhere is told why in its condition PodScheduled.
// It is tried again when something happens that may help, or after five minutes, in case such an
// event was missed. Pods that need devices get them meanwhile, each in a [lane].
//
// Everything that the decisions depend on is in memory: a [cluster] that the event handlers of the
// informers keep up to date. Namespaces, disruption budgets, and everything about volumes and
// devices are watched only once a pod needs them.
//
// Differences from kube-scheduler: it has one profile and no extenders. Pods are not spread over
// nodes by the images that the nodes have. It does not count volumes per node. Taints of devices
// count if they are in a ResourceSlice, not in a DeviceTaintRule; devices with binding conditions
// are not allocated, and allocated devices are not taken from a claim to help a pod.
package scheduler
