package server_test

import (
	"context"
	"fmt"
	"log"
	"os"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server"
)

func Example() {
	ctx := context.Background()
	s, err := server.New(server.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if err := s.Start(ctx); err != nil {
		log.Fatal(err)
	}
	defer s.Stop(ctx)

	client := kubernetes.NewForConfigOrDie(s.RESTConfig())
	namespaces, err := client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		log.Fatal(err)
	}
	for _, ns := range namespaces.Items {
		fmt.Println(ns.Name)
	}
	// Output:
	// default
	// kube-node-lease
	// kube-public
	// kube-system
}

// With a data directory, the next start serves the same objects.
func ExampleOptions() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	for range 2 {
		s, err := server.New(server.Options{DataDir: dir})
		if err != nil {
			log.Fatal(err)
		}
		if err := s.Start(ctx); err != nil {
			log.Fatal(err)
		}
		maps := kubernetes.NewForConfigOrDie(s.RESTConfig()).CoreV1().ConfigMaps("default")
		_, err = maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "colors"}},
			metav1.CreateOptions{})
		fmt.Println("already exists:", apierrors.IsAlreadyExists(err))
		if err := s.Stop(ctx); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// already exists: false
	// already exists: true
}

// A user may do what RBAC allows, which is next to nothing at first.
func ExampleServer_User() {
	ctx := context.Background()
	s, err := server.New(server.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if err := s.Start(ctx); err != nil {
		log.Fatal(err)
	}
	defer s.Stop(ctx)

	config, err := s.User("jane", "developers")
	if err != nil {
		log.Fatal(err)
	}
	_, err = kubernetes.NewForConfigOrDie(config).CoreV1().Secrets("default").List(ctx,
		metav1.ListOptions{})
	fmt.Println("forbidden:", apierrors.IsForbidden(err))
	// Output: forbidden: true
}
