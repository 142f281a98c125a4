package install

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kinproc/kinproc/chain/documents"
)

// File is one with manifests. Objects that are in no file are those of one without a name.
type File struct {
	Name    string
	Objects []*unstructured.Unstructured

	kindless int // the number of the first document without a kind, or 0
}

// CheckKinds returns an error unless each object has an apiVersion and a kind.
func (f File) CheckKinds() error {
	if f.kindless == 0 {
		return nil
	}
	return fmt.Errorf("%s: document %d: %w", f.Name, f.kindless, errKindless)
}

var errKindless = errors.New("it has no apiVersion or no kind")

func hasKind(u *unstructured.Unstructured) bool { return u.GetAPIVersion() != "" && u.GetKind() != "" }

// wrong returns an error about an object of the file.
func (f File) wrong(u *unstructured.Unstructured, err error) error {
	err = fmt.Errorf("%s: %w", named(u), err)
	if f.Name == "" {
		return err
	}
	return fmt.Errorf("%s: %w", f.Name, err)
}

// ReadPath reads a file of the machine, or the manifests in a directory, as Read does.
func ReadPath(name string, read func(name string) ([]byte, error)) ([]File, error) {
	absolute, err := filepath.Abs(name)
	if err != nil {
		return nil, err
	}
	dir, base := filepath.Split(absolute)
	if base == "" {
		base = "." // the root of a file system
	}
	files, err := Read(os.DirFS(dir), base, func(file string) ([]byte, error) {
		return read(filepath.Join(dir, filepath.FromSlash(file)))
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	for i, f := range files {
		files[i].Name = filepath.Join(name, filepath.FromSlash(strings.TrimPrefix(f.Name, base)))
	}
	return files, nil
}

// Read reads a file, or the manifests in a directory, in the order of their names. Those are the
// files named *.yaml, *.yml and *.json, except those of Kustomize. The contents come from read.
// Errors name files of the directory, and leave it to the caller to name the path.
func Read(
	fsys fs.FS, name string, read func(name string) ([]byte, error),
) (files []File, err error) {
	info, err := fs.Stat(fsys, name)
	if err != nil {
		return nil, withoutPath(err)
	}
	if !info.IsDir() {
		f, err := readFile(name, read)
		return []File{f}, err
	}
	entries, err := fs.ReadDir(fsys, name)
	if err != nil {
		return nil, withoutPath(err)
	}
	for _, e := range entries {
		if e.IsDir() || !isManifest(e.Name()) {
			continue
		}
		f, err := readFile(path.Join(name, e.Name()), read)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.Name(), err)
		}
		files = append(files, f)
	}
	return files, nil
}

func isManifest(name string) bool {
	base := strings.TrimSuffix(name, path.Ext(name))
	return slices.Contains([]string{".yaml", ".yml", ".json"}, path.Ext(name)) &&
		base != "kustomization" && base != "kustomizeconfig"
}

func readFile(name string, read func(name string) ([]byte, error)) (File, error) {
	data, err := read(name)
	if err != nil {
		return File{}, withoutPath(err)
	}
	return decode(name, data)
}

// withoutPath returns the cause of an error of package fs.
func withoutPath(err error) error {
	var of *fs.PathError
	if errors.As(err, &of) {
		return of.Err
	}
	return err
}

// Decode returns the objects of YAML documents, with those of lists. Empty documents are skipped.
func Decode(data []byte) ([]*unstructured.Unstructured, error) {
	f, err := decode("", data)
	return f.Objects, err
}

func decode(name string, data []byte) (File, error) {
	f, n := File{Name: name}, 0
	add := func(o runtime.Object) error {
		u := o.(*unstructured.Unstructured)
		if f.kindless == 0 && !hasKind(u) {
			f.kindless = n
		}
		f.Objects = append(f.Objects, u)
		return nil
	}
	for document, err := range documents.Split(data) {
		n++
		var object map[string]any
		if err == nil {
			err = documents.Decode(document, &object)
		}
		switch u := (&unstructured.Unstructured{Object: object}); {
		case err != nil || len(object) == 0:
		case u.IsList():
			err = u.EachListItem(add)
		default:
			err = add(u)
		}
		if err != nil {
			return File{}, fmt.Errorf("document %d: %w", n, err)
		}
	}
	return f, nil
}
