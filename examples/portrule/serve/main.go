// Serve runs one of the servers of portrule, registered with the sandbox of the working directory:
// nethttp or sdk.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kinproc/kinproc/examples/portrule/nethttp"
	"github.com/kinproc/kinproc/examples/portrule/sdk"
)

const dir = ".kinproc"

var servers = map[string]func(context.Context, *rest.Config) error{
	"nethttp": nethttp.Run,
	"sdk": func(ctx context.Context, config *rest.Config) error {
		return sdk.Run(ctx, config, filepath.Join(dir, "portrules"))
	},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	if len(os.Args) != 2 || servers[os.Args[1]] == nil {
		return fmt.Errorf("usage: %s nethttp|sdk", os.Args[0])
	}
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "kubeconfig"))
	if err != nil {
		return err
	}
	return servers[os.Args[1]](ctx, config)
}
