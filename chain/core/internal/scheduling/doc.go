// Package scheduling declares the group scheduling.k8s.io: priority classes, and, off by default, the groups of pods that are scheduled
// together (KEP-4671, KEP-6012): workloads, pod groups and composite pod groups.
//
// kube-apiserver serves the latter only with the feature gates GenericWorkload and CompositePodGroup. Here, switching on the version is
// enough. Fields of other features that are off by default are cleared, as they are there: TopologyAwareWorkloadScheduling (a pod
// group's schedulingConstraints), DRAWorkloadResourceClaims (resourceClaims) and PodGroupPreemptionPolicy (preemptionPolicy).
package scheduling
