// Package exchanges replays HTTP exchanges that were recorded from a real kube-apiserver against
// another server, and reports where the answers differ. It compares what clients rely on: status
// codes, bodies, the reasons and fields of refusals, and the number of warnings. Wording is free.
//
//	recordings, err := exchanges.Load(os.DirFS("testdata"))
//	…
//	target := exchanges.Target{URL: url, Client: client, Token: token}
//	differences, count, err := recordings[0].Replay(ctx, target)
package exchanges
