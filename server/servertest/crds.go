package servertest

import "context"

// CRDs installs the CRDs (CustomResourceDefinitions) that the sources
// have, and ignores their other objects. It returns when the CRDs are established, their
// resources can be created and listed, and discovery has them. A CRD that exists already is
// replaced.
//
// The sources are manifests as controller-gen writes them, objects, or Go types; see [GoTypes].
//
// In a cluster that outlives the test, what CRDs has created is deleted when the test
// ends, and all custom resources with them. If several tests use the same CRDs there,
// install them in [MainWith].
func CRDs(t TB, c API, sources ...Source) {
	t.Helper()
	do(t, c, "install CRDs", func(ctx context.Context, k *clients) error {
		objects, err := readAll(sources)
		if err != nil {
			return err
		}
		created, err := k.CRDs(ctx, objects)
		deleteCreated(t, c, created)
		return err
	})
}
