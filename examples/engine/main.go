// Engine is an extension API server whose kind is declared in the same way as kinproc's built-in
// kinds (see room.go). It stores objects in files and has a websocket subresource (see talk.go).
// See README.md for how to run it.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/kinproc/kinproc/chain/kind"
	"github.com/kinproc/kinproc/server/extension"
)

func main() {
	port := flag.Int("secure-port", 8444, "port to listen on; 0 picks a free one")
	kubeconfig := flag.String("kubeconfig", ".kinproc/kubeconfig",
		"kubeconfig of the API server that authenticates and authorizes")
	dir := flag.String("data-dir", "rooms", "directory for the objects")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *port, *kubeconfig, *dir); err != nil {
		log.Fatal(err)
	}
}

// run serves until ctx is done. When the server is ready, it prints the manifests that register it.
func run(ctx context.Context, port int, kubeconfig, dir string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	s, err := extension.New(extension.Options{
		Groups:     []kind.Group{chat()},
		RESTConfig: config,
		SecurePort: port,
		Storage:    extension.Files(dir),
	})
	if err != nil {
		return err
	}
	manifests, err := s.Registration().YAML()
	if err != nil {
		return err
	}
	go func() {
		select {
		case <-s.Ready():
			fmt.Printf("%s", manifests)
		case <-ctx.Done():
		}
	}()
	return s.Run(ctx)
}
