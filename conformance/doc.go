// Package conformance holds the tests that compare kinproc with a real kube-apiserver: recorded
// exchanges, OpenAPI documents, the objects of a real cluster, and random requests that are also
// sent to a second server.
//
// The recordings in testdata were made with kube-apiserver v1.37.2 without controllers. make record
// makes them anew; docs/upgrading.md says from what. The server under test must be empty and run
// without controllers and without the ServiceAccount admission plugin, and the token's user must be
// in system:masters. testdata/exceptions.json lists the intended differences, each with a reason.
// An entry that no longer differs must be removed from that list.
package conformance
