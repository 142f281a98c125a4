package install

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
)

// fatal is an error that no repetition mends.
type fatal struct{ error }

// Fatal returns an error at which Until and Await give up. They return err.
func Fatal(err error) error { return fatal{err} }

// polling is frequent at first, because most things take a few milliseconds.
func polling() wait.DelayFunc {
	return wait.Backoff{
		Duration: 2 * time.Millisecond, Factor: 2, Cap: 100 * time.Millisecond, Steps: 10,
	}.DelayFunc()
}

// Until repeats try until it succeeds, or its error is fatal. If ctx ends first, the error has the
// last one from try.
func Until(ctx context.Context, try func(context.Context) error) error {
	var last error
	err := polling().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		err := try(ctx)
		var end fatal
		switch {
		case errors.As(err, &end):
			return false, end
		case err == nil || ctx.Err() == nil || last == nil:
			last = err // one that ctx has caused would hide what is missing
		}
		return err == nil, nil
	})
	var end fatal
	switch {
	case err == nil:
		return nil
	case errors.As(err, &end):
		return end.error
	case last == nil:
		return err // ctx had ended before
	}
	return fmt.Errorf("%w (%w)", last, err)
}

// Await reads an object until it exists and missing returns nil for it, or until the caller is not
// allowed to read it. If ctx ends first, the error has the last one.
func Await(
	ctx context.Context, resource dynamic.ResourceInterface, name string,
	missing func(*unstructured.Unstructured) error,
) error {
	return Until(ctx, func(ctx context.Context) error {
		u, err := resource.Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsUnauthorized(err), apierrors.IsForbidden(err):
			return fatal{err}
		case err != nil:
			return err
		}
		return missing(u)
	})
}
