// Package simulated has nodes that do a kubelet's part of the API without running anything. They
// are ready and renew their leases, and the pods that are bound to them start, run and end.
//
//	nodes, err := simulated.New(simulated.Config{Client: client, Informers: factory, Count: 1})
//	err = nodes.Run(ctx)
//
// A node that this package makes is recognised by its name and by the label [Label]. Nodes that
// others make are simulated too if they have one of the [Marks]: what their makers said about them
// stays. All other nodes, and the pods on them, are left to those who registered them.
//
// What a pod does follows from its spec, see [behavior], and can be steered by annotations, which
// docs/nodes.md describes.
package simulated
