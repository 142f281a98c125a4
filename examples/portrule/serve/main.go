// Serve runs one of the servers of portrule, registered with the sandbox of the working directory:
// nethttp, apiserver or sdk.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kinproc/kinproc/examples/portrule/apiserver"
	"github.com/kinproc/kinproc/examples/portrule/nethttp"
	"github.com/kinproc/kinproc/examples/portrule/sdk"
)

const (
	dir        = ".kinproc"
	kubeconfig = dir + "/kubeconfig"
)

var servers = map[string]func(ctx context.Context, config *rest.Config, etcd string) error{
	"nethttp": func(ctx context.Context, config *rest.Config, _ string) error {
		return nethttp.Run(ctx, config)
	},
	"apiserver": func(ctx context.Context, _ *rest.Config, etcd string) error {
		return apiserver.Run(ctx, kubeconfig, []string{etcd})
	},
	"sdk": func(ctx context.Context, config *rest.Config, _ string) error {
		return sdk.Run(ctx, config, filepath.Join(dir, "portrules"))
	},
}

func main() {
	etcd := flag.String("etcd", "http://127.0.0.1:2379", "URL of the etcd in which apiserver stores")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *etcd); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, etcd string) error {
	serve := servers[flag.Arg(0)]
	if flag.NArg() != 1 || serve == nil {
		return fmt.Errorf("usage: %s [-etcd URL] nethttp|apiserver|sdk", os.Args[0])
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	return serve(ctx, config, etcd)
}
