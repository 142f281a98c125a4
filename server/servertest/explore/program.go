package explore

import (
	"context"

	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/server/internal/program"
)

// Program returns a controller for the field Controller that is a program, such as "./manager". It
// finds the control plane by the environment variable KUBECONFIG, and is killed when it is to
// crash.
//
// On Linux as root, the program has a network of its own, so that several can listen on the same
// port. Elsewhere, limit the field Parallel to 1 if the program listens on a fixed port. No program
// runs in a bubble, and none reaches what needs a connection of its own, such as an exec into a
// pod.
func Program(name string, args ...string) func(context.Context, *rest.Config) error {
	return func(ctx context.Context, config *rest.Config) error {
		network, err := program.NewNetwork()
		if err == nil {
			defer network.Close()
		}
		return program.RunController(ctx, access(config, network), append([]string{name}, args...), nil)
	}
}

// Scripts returns the steps of a user for the field Act, which are scripts: executables, or files
// for sh. They find the control plane by the environment variable KUBECONFIG. Each starts when the
// system is idle after the one before.
func Scripts(paths ...string) func(t TB, config *rest.Config) {
	return func(t TB, config *rest.Config) {
		if err := program.RunScripts(t.Context(), access(config, nil), paths, t.Idle); err != nil {
			t.Fatalf("%v", err)
		}
	}
}

func access(config *rest.Config, network *program.Network) program.Access {
	return program.Access{Config: config, Upgrades: config, Network: network}
}
