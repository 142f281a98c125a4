package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/chain/fault"
	"github.com/kinproc/kinproc/server"
)

// testBed is a control plane of exec.
type testBed struct {
	*server.Server
	kubeconfig string
	faults     []fault.Fault
}

// parseFaults returns the faults of flags, each of which has the words of one.
func parseFaults(flags []string) (all []fault.Spec, err error) {
	for _, words := range flags {
		f, err := parseFault(strings.Fields(words))
		if err != nil {
			return nil, usageError{fmt.Errorf("--fault: %w (see kinproc fault --help)", err)}
		}
		all = append(all, f)
	}
	return all, nil
}

// addFaults adds faults.
func addFaults(ctx context.Context, config *rest.Config, specs []fault.Spec) (
	all []fault.Fault, err error,
) {
	for _, spec := range specs {
		added, err := fault.Add(ctx, config, spec)
		if err != nil {
			return nil, fmt.Errorf("--fault %q: %w", spec.String(), err)
		}
		all = append(all, added)
	}
	return all, nil
}

// missedFaults returns an error for the faults that have hit nothing in any control plane, but
// should have.
func missedFaults(ctx context.Context, beds []testBed) error {
	var errs []error
	for i, f := range beds[0].faults {
		missed := !f.Spec.Rule.Optional
		for _, bed := range beds {
			now, err := fault.Get(ctx, bed.RESTConfig(), bed.faults[i].ID)
			switch {
			case apierrors.IsNotFound(err): // the command has removed it
				missed = false
			case err != nil:
				errs = append(errs, err)
			case now.Status.Count > 0:
				missed = false
			}
		}
		if missed {
			errs = append(errs, fmt.Errorf("the fault %q hit no request", f.Spec.String()))
		}
	}
	return errors.Join(errs...)
}
