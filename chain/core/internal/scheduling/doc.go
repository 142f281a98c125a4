// Package scheduling declares the group scheduling.k8s.io: priority classes and, off by default,
// the kinds for pods that are scheduled together (KEP-4671, KEP-6012): workloads, pod groups and
// composite pod groups.
//
// kube-apiserver serves the latter only if the feature gates GenericWorkload and CompositePodGroup
// are on. Here, enabling the version is enough. As in kube-apiserver, the fields of other features
// that are off by default are cleared: TopologyAwareWorkloadScheduling (a pod group's
// schedulingConstraints), DRAWorkloadResourceClaims (resourceClaims) and PodGroupPreemptionPolicy
// (preemptionPolicy).
package scheduling
