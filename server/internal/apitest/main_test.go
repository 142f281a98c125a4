package apitest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest"
)

// TestMain starts the control plane that the tests share, with default options.
func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard()) // servertest prints the logs of failed tests
	servertest.MainWith(m, func(t servertest.TB) servertest.API { return servertest.Run(t) })
}

// shared returns the control plane that the tests share, and a namespace of the test's own in it.
func shared(t *testing.T) (s *server.Server, namespace string) {
	t.Helper()
	api, namespace := servertest.Shared(t)
	return api.(*server.Server), namespace
}

// quiet starts a control plane without controllers and returns it with a client.
func quiet(
	t *testing.T, configure ...func(*server.Options),
) (*server.Server, kubernetes.Interface) {
	t.Helper()
	s := servertest.Run(t, append(configure, servertest.WithoutControllers)...)
	client, err := kubernetes.NewForConfig(s.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	return s, client
}

// as returns a client for another user.
func as(t *testing.T, s *server.Server, name string, groups ...string) kubernetes.Interface {
	t.Helper()
	config, err := s.User(name, groups...)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// awaitDefaultAccount waits for the service account that a control loop makes in the namespace
// default. Pods can be created before: the server lets them wait.
func awaitDefaultAccount(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	eventually(t, "the service account default", func() error {
		_, err := client.CoreV1().ServiceAccounts("default").Get(t.Context(), "default",
			metav1.GetOptions{})
		return err
	})
}

func must[T any](obj T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return obj
	}
}

// eventually retries until there is no error. RBAC rules, for example, take effect only once the
// server has observed them.
func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, time.Minute, true,
		func(context.Context) (bool, error) {
			last = try()
			return last == nil, nil
		})
	if err != nil {
		t.Fatalf("%s: %v", what, last)
	}
}

// await is eventually for a condition that does not say what is missing.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	eventually(t, what, func() error {
		if holds() {
			return nil
		}
		return errors.New("not within a minute")
	})
}
