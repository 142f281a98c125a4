// Package podlifecycle declares the group lifecycle.k8s.io (KEP-4563), off by default: requests for
// the graceful eviction of pods, and the evictions that result from them.
//
// kube-apiserver serves the group only if the feature gate EvictionRequestAPI is on. Here, enabling
// the version is enough. There is no built-in controller that turns requests into evictions.
package podlifecycle
