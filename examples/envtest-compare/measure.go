package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/kinproc/kinproc/server"
)

// subject is a control plane to measure.
type subject struct {
	name string
	// start returns a client configuration when the control plane is ready, and a function that
	// stops it.
	start func(context.Context) (*rest.Config, func() error, error)
}

// times are how long the steps of one round took.
type times struct{ start, first, creates, gets, stop time.Duration }

func envtestIn(assets string) func(context.Context) (*rest.Config, func() error, error) {
	return func(context.Context) (*rest.Config, func() error, error) {
		e := &envtest.Environment{BinaryAssetsDirectory: assets}
		config, err := e.Start()
		if err != nil {
			return nil, nil, errors.Join(err, e.Stop())
		}
		return config, e.Stop, nil
	}
}

func overTLS(ctx context.Context) (*rest.Config, func() error, error) {
	s, stop, err := startServer(ctx)
	if err != nil {
		return nil, nil, err
	}
	return s.RESTConfig(), stop, nil
}

func inProcess(ctx context.Context) (*rest.Config, func() error, error) {
	s, stop, err := startServer(ctx)
	if err != nil {
		return nil, nil, err
	}
	config, err := s.InProcessConfig("admin", "system:masters")
	if err != nil {
		return nil, nil, errors.Join(err, stop())
	}
	return config, stop, nil
}

// startServer starts a control plane as a test has it: it keeps nothing and runs no control loops,
// as envtest's does.
func startServer(ctx context.Context) (*server.Server, func() error, error) {
	s, err := server.New(server.Options{Controllers: []string{"-*"}})
	if err != nil {
		return nil, nil, err
	}
	if err := s.Start(ctx); err != nil {
		return nil, nil, err
	}
	return s, func() error { return s.Stop(context.WithoutCancel(ctx)) }, nil
}

// measure starts a control plane, uses it with one client, and stops it.
func measure(ctx context.Context, s subject, objects int) (t times, err error) {
	began := time.Now()
	config, stop, err := s.start(ctx)
	if err != nil {
		return t, fmt.Errorf("start: %w", err)
	}
	t.start = time.Since(began)
	defer func() {
		began := time.Now()
		if stopErr := stop(); stopErr != nil {
			err = errors.Join(err, fmt.Errorf("stop: %w", stopErr))
		}
		t.stop = time.Since(began)
	}()

	config.QPS = -1 // the client must not be what is measured
	config.ContentType = "application/vnd.kubernetes.protobuf"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return t, err
	}
	configMaps := client.CoreV1().ConfigMaps("default")
	create := func(name string) error {
		_, err := configMaps.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"color": "green"},
		}, metav1.CreateOptions{})
		return err
	}
	began = time.Now()
	if err := create("first"); err != nil {
		return t, err
	}
	t.first = time.Since(began)

	began = time.Now()
	for i := range objects {
		if err := create(fmt.Sprint("object-", i)); err != nil {
			return t, err
		}
	}
	t.creates = time.Since(began)

	began = time.Now()
	for i := range objects {
		if _, err := configMaps.Get(ctx, fmt.Sprint("object-", i), metav1.GetOptions{}); err != nil {
			return t, err
		}
	}
	t.gets = time.Since(began)
	return t, nil
}
