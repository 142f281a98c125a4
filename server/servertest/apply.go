package servertest

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kinproc/kinproc/server/internal/install"
)

// Apply creates the objects of the sources one after the other, and returns them as they were
// stored. If an object exists already, it is changed by a server-side apply that takes ownership of
// conflicting fields. The status of an object is not written.
//
// An object that belongs in a namespace and names none gets the given one, or "default" if that is
// empty. Apply waits until the custom resources of a CRD can be created before it creates
// what follows, so CRDs and their resources may be in one file.
//
// In a cluster that outlives the test, the objects that Apply created are deleted when the test
// ends, the last one first. A control plane of [Run] keeps them until it stops.
func Apply(t TB, c API, namespace string, sources ...Source) []*unstructured.Unstructured {
	t.Helper()
	var stored []*unstructured.Unstructured
	do(t, c, "apply", func(ctx context.Context, k *clients) error {
		objects, err := readAll(sources)
		if err != nil {
			return err
		}
		if len(objects) == 0 {
			return errors.New("the sources are empty")
		}
		created, err := k.Create(ctx, namespace, install.File{Objects: objects})
		deleteCreated(t, c, created)
		for _, o := range created {
			stored = append(stored, o.Unstructured)
		}
		return err
	})
	return stored
}
