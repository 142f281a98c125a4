package cli

import (
	"context"

	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/server/internal/install"
	"github.com/kinproc/kinproc/server/internal/plainfile"
)

// prepareFrom creates the objects of manifests. Those that exist, such as what every control plane
// has, are changed by a server-side apply.
func prepareFrom(ctx context.Context, config *rest.Config, all []install.File) error {
	if len(all) == 0 {
		return nil
	}
	client, err := install.New(config, "kinproc-explore")
	if err != nil {
		return err
	}
	_, err = client.Create(ctx, "", all...)
	return err
}

// readManifests returns the manifests in files and folders.
func readManifests(paths []string) (all []install.File, err error) {
	for _, path := range paths {
		files, err := install.ReadPath(path, plainfile.Read)
		if err == nil {
			err = checkObjects(path, files)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, files...)
	}
	return all, nil
}
