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
// It does what kube-scheduler 1.37 does with its default gates; docs/compatibility.md has the
// differences.
package scheduler
