package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/cli/internal/private"
	"github.com/kinproc/kinproc/server/cli/internal/settings"
	"github.com/kinproc/kinproc/server/internal/install"
)

// manifestManager is the field manager of the objects that a file kinproc.yaml names.
const manifestManager = "kinproc"

// applyManifests applies the manifests of kinproc.yaml that have not been applied in this data
// directory. It says how many objects those are.
func applyManifests(
	ctx context.Context, srv *server.Server, in *settings.Settled, w io.Writer,
) error {
	if in.File == nil || len(in.File.Manifests) == 0 {
		return nil
	}
	dir := filepath.Dir(in.File.Path)
	work, err := private.OpenWork(dir, in.ConfigNamed())
	if err != nil {
		return err
	}
	defer work.Close()
	client, err := install.New(srv.RESTConfig(), manifestManager)
	if err != nil {
		return err
	}
	wrong := func(m settings.Manifest, err error) error {
		return settings.Mistake{
			Path: in.File.Path, Line: m.Line, Err: fmt.Errorf("manifests: %w", err),
		}
	}
	todo := slices.DeleteFunc(slices.Clone(in.File.Manifests), func(m settings.Manifest) bool {
		return slices.Contains(in.Memory.Applied, m.Path)
	})
	files := make([][]install.File, len(todo))
	for i, m := range todo { // before anything is written
		if files[i], err = readManifest(work, m.Path); err != nil {
			return wrong(m, err)
		}
	}
	for i, m := range todo {
		applied, err := client.Apply(ctx, "", files[i]...)
		if err != nil {
			return wrong(m, err)
		}
		fmt.Fprintf(w, "kinproc: applied %s of %s\n", count(len(applied), "object"), m.Path)
	}
	return nil
}

// count returns a number with a noun.
func count(number int, noun string) string {
	if number == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", number, noun)
}

// readManifest reads a file, or the manifests of a directory.
func readManifest(work *private.Dir, path string) ([]install.File, error) {
	name, err := work.Within(filepath.FromSlash(path))
	if err != nil {
		return nil, fmt.Errorf("%w; copy or move it there", err)
	}
	var unread error // names the file
	files, err := install.Read(work.Root.FS(), filepath.ToSlash(name),
		func(name string) (data []byte, err error) {
			data, unread = work.Read(name)
			return data, unread
		})
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("there is no %s in %s", name, work.Path)
	case unread != nil:
		return nil, unread
	case err != nil:
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return files, checkObjects(path, files)
}

// checkObjects returns an error if the files at a path have no objects, or some without a kind.
func checkObjects(path string, files []install.File) error {
	var errs []error
	number := 0
	for _, f := range files {
		errs = append(errs, f.CheckKinds())
		number += len(f.Objects)
	}
	if number == 0 {
		return fmt.Errorf("%s has no objects", path)
	}
	return errors.Join(errs...)
}
