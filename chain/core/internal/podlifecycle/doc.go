// Package lifecycle declares the group lifecycle.k8s.io (KEP-4563), off by default: requests for the graceful eviction of pods, and the
// evictions that come of them.
//
// kube-apiserver serves it only with the feature gate EvictionRequestAPI. Here, switching on the version is enough. No built-in control
// loop makes evictions of requests.
package podlifecycle
