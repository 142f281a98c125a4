// Crontab is an operator for the custom resource crontabs.simple.extension.io, built from informers
// and a work queue. It maintains a CronJob for every CronTab. See README.md.
package main

import (
	"context"
	"flag"
	"log"
	"os"
	"os/signal"

	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	kubeconfig := flag.String("kubeconfig", ".kinproc/kubeconfig", "kubeconfig of the API server")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		log.Fatal(err)
	}
	o, err := newOperator(config)
	if err != nil {
		log.Fatal(err)
	}
	o.run(ctx)
}
