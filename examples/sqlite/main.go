// Sqlite is an extension API server that stores its objects in an SQLite database: see database.go.
// See README.md for how to run it.
package main

import (
	"context"
	"flag"
	"log"
	"os"
	"os/signal"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kinproc/kinproc/chain/kind"
	"github.com/kinproc/kinproc/server/extension"
)

func main() {
	kubeconfig := flag.String("kubeconfig", ".kinproc/kubeconfig", "kubeconfig of the control plane")
	file := flag.String("database", "notes.db", "file of the database")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		log.Fatal(err)
	}
	if err := run(ctx, config, *file); err != nil {
		log.Fatal(err)
	}
}

// run serves, registered with the control plane of config, until ctx is done.
func run(ctx context.Context, config *rest.Config, file string) error {
	db, err := openDatabase(ctx, file)
	if err != nil {
		return err
	}
	s, err := extension.New(extension.Options{
		Groups: []kind.Group{notes()}, RESTConfig: config, Storage: extension.Records(db),
	})
	if err != nil {
		return err
	}
	work, ctx := errgroup.WithContext(ctx)
	work.Go(func() error { return s.Run(ctx) })
	work.Go(func() error {
		err := extension.Register(ctx, config, s.Registration())
		if ctx.Err() != nil {
			return nil
		}
		return err
	})
	return work.Wait()
}
