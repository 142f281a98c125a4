// Package conformance holds the tests that compare kinproc with a real kube-apiserver: recorded
// exchanges, OpenAPI documents, the objects of a real cluster, and random requests to a second
// server.
//
// The recordings in testdata are of kube-apiserver v1.36.3 without controllers. The server under
// test has to be empty, without controllers and without the ServiceAccount admission plugin, and the
// token has to be in system:masters. testdata/exceptions.json lists the differences that are meant,
// each with its reason. A difference that is gone has to go from that list as well.
package conformance
