package cli_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// copier is a program for the script of kinproc explore: a controller that creates the config maps
// "copy" and "done" when there is one named "original". Its first argument says whether it takes
// "copy" for a proof of "done".
func copier() {
	if err := copyMaps(context.Background(), os.Args[1] == "careless"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func copyMaps(ctx context.Context, careless bool) error {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	maps := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps("default")
	create := func(name string) error {
		_, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}},
			metav1.CreateOptions{})
		return err
	}
	w, err := maps.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		if o, ok := e.Object.(*corev1.ConfigMap); !ok || o.Name != "original" {
			continue
		}
		err := create("copy")
		if apierrors.IsAlreadyExists(err) && careless {
			continue
		}
		if err := errors.Join(err, create("done")); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return nil
}
