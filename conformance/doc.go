// Package conformance replays HTTP exchanges that were recorded from a real kube-apiserver (v1.36.3, without controllers) against
// another server and reports where the answers differ. What decides is what clients can rely on: status codes, bodies, the reasons and
// fields of refusals, the number of warnings. Wording is free.
//
//	recordings, err := conformance.Load(os.DirFS("testdata"))
//	…
//	differences, err := recordings[0].Replay(ctx, conformance.Target{URL: url, Client: client, Token: token})
//
// The server has to be empty, without controllers and without the ServiceAccount admission plugin, the token in system:masters.
// testdata/exceptions.json lists the differences that are meant, each with its reason; one that is gone has to go from there as well.
package conformance
