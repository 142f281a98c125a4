// Kinproc runs a Kubernetes control plane in one process: an embedded etcd and three API servers,
// chained as in kube-apiserver: the aggregator, the core-like server and the server of custom
// resources.
package main

import (
	"os"

	"github.com/kinproc/kinproc/server/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:])) }
