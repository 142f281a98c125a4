package servertest

import (
	"fmt"
	"os"
	"strconv"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kinproc/kinproc/server"
)

// API is what the helpers of this package act on: a [*server.Server], or what [ForConfig] returns.
// RESTConfig returns the client configuration of an administrator.
type API interface {
	RESTConfig() *rest.Config
}

// ForConfig returns the API that a client configuration leads to, so that the helpers can be used
// with any cluster. It is treated as one that outlives the test: what the helpers create there is
// deleted when the test ends.
func ForConfig(config *rest.Config) API { return existing{config} }

type existing struct{ config *rest.Config }

func (e existing) RESTConfig() *rest.Config { return rest.CopyConfig(e.config) }

// existingVariable is the environment variable that asks for an existing cluster.
const existingVariable = "KINPROC_USE_EXISTING_CLUSTER"

// Cluster returns the API of a control plane for the test, like [Run], or of an existing cluster:
// if the environment variable KINPROC_USE_EXISTING_CLUSTER is true, configure has no effect, and
// the API is that of the current context of the kubeconfig, which is found as by kubectl. The
// package documentation says what differs there.
func Cluster(t TB, configure ...func(*server.Options)) API {
	t.Helper()
	use, err := useExisting()
	if err != nil {
		t.Fatalf("servertest: %v", err)
	}
	if !use {
		return Run(t, configure...)
	}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		clientcmd.NewDefaultClientConfigLoadingRules(), nil).ClientConfig()
	if err != nil {
		t.Fatalf("servertest: %s is set: %v", existingVariable, err)
	}
	config.QPS = -1 // no rate limit, as for a control plane
	return ForConfig(config)
}

func useExisting() (bool, error) {
	value := os.Getenv(existingVariable)
	if value == "" {
		return false, nil
	}
	use, err := strconv.ParseBool(value)
	if err != nil {
		return false, fmt.Errorf("%s: %q is neither true nor false", existingVariable, value)
	}
	return use, nil
}

// endsWithTests reports whether a cluster ends with the tests, so that nothing in it needs to be
// deleted one by one.
func endsWithTests(c API) bool {
	_, ok := c.(*server.Server)
	return ok
}
