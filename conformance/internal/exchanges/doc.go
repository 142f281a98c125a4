// Package exchanges replays HTTP exchanges recorded from a real kube-apiserver against another
// server and reports where the responses differ. It compares what clients rely on: status codes,
// bodies, the reasons and fields of failures, and the number of warnings. Messages may differ.
//
//	recordings, err := exchanges.Load(os.DirFS("testdata"))
//	…
//	target := exchanges.Target{URL: url, Client: client, Token: token}
//	differences, count, err := recordings[0].Replay(ctx, target)
package exchanges
