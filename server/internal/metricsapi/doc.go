// Package metricsapi serves metrics.k8s.io, custom.metrics.k8s.io and external.metrics.k8s.io for
// simulated pods, as metrics-server and an adapter do in a real cluster. The values follow from
// annotations, which docs/nodes.md describes.
//
// It is an extension API server inside the process: [API.Register] writes APIServices that name the
// Service kube-system/kinproc-metrics, and the aggregator, which dials by [API.Dial], reaches the
// server in memory, over TLS. Nothing listens on a port, and nothing runs before the first
// connection. An APIService that somebody else writes wins.
package metricsapi
