// Package nodes simulates nodes: it does a kubelet's part of the API, without running anything. The
// nodes are ready and renew their leases, and the pods that are bound to them start, run and end.
//
//	err := nodes.New(nodes.Config{Client: client, Informers: factory, Count: 1}).Run(ctx)
//
// A node of this package is recognised by its name and by the label [Label]. All other nodes, and
// the pods on them, are left to those who registered them.
//
// What a pod does follows from its spec, see [behavior], and can be steered by annotations, which
// docs/nodes.md describes.
package nodes
