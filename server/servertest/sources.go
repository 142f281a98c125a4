package servertest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	apiextensionsscheme "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/scheme"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	aggregatorscheme "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/scheme"

	"github.com/kinproc/kinproc/chain/documents"
)

// A Source has the objects that a helper is to create. [Files], [FS], [YAML], [Objects] and
// [GoTypes] return sources.
type Source struct {
	read func() ([]*unstructured.Unstructured, error)
}

// Files is the source of the manifests in files and directories. Of a directory, it reads the files
// named *.yaml, *.yml and *.json in the order of their names, except those of Kustomize, and no
// directories below. A file may hold several YAML documents and lists of kind List. Relative paths
// start in the directory of the test's package.
func Files(paths ...string) Source {
	return Source{func() ([]*unstructured.Unstructured, error) {
		var all []*unstructured.Unstructured
		for _, p := range paths {
			absolute, err := filepath.Abs(p)
			if err != nil {
				return nil, err
			}
			dir, name := filepath.Split(absolute)
			if name == "" {
				name = "." // the root of a file system
			}
			objects, err := readPath(os.DirFS(dir), name)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", p, err)
			}
			all = append(all, objects...)
		}
		return all, nil
	}}
}

// FS is the source of the manifests in files and directories of a file system, such as an
// [embed.FS], which are read as by [Files]. Without paths, it reads the root directory.
func FS(fsys fs.FS, paths ...string) Source {
	if len(paths) == 0 {
		paths = []string{"."}
	}
	return Source{func() ([]*unstructured.Unstructured, error) {
		var all []*unstructured.Unstructured
		for _, p := range paths {
			objects, err := readPath(fsys, p)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", p, err)
			}
			all = append(all, objects...)
		}
		return all, nil
	}}
}

// YAML is the source of the manifests in a text of one or more YAML or JSON documents.
func YAML(text string) Source {
	return Source{func() ([]*unstructured.Unstructured, error) { return parse([]byte(text)) }}
}

// Objects is the source of copies of objects. The objects of Kubernetes itself may leave their
// apiVersion and kind empty. Others, such as custom resources, must have them.
func Objects(objects ...runtime.Object) Source {
	return Source{func() ([]*unstructured.Unstructured, error) {
		var all []*unstructured.Unstructured
		for _, o := range objects {
			u, err := fromObject(o)
			if err != nil {
				return nil, err
			}
			all = append(all, u)
		}
		return all, nil
	}}
}

func readAll(sources []Source) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	for _, s := range sources {
		if s.read == nil {
			return nil, errors.New("a zero Source: use Files, FS, YAML, Objects or GoTypes")
		}
		objects, err := s.read()
		if err != nil {
			return nil, err
		}
		all = append(all, objects...)
	}
	return all, nil
}

// pick returns the objects that are of one of the kinds of an API group, in any version.
func pick(
	objects []*unstructured.Unstructured, group string, kinds ...string,
) []*unstructured.Unstructured {
	var picked []*unstructured.Unstructured
	for _, u := range objects {
		if kind := u.GroupVersionKind(); kind.Group == group && slices.Contains(kinds, kind.Kind) {
			picked = append(picked, u)
		}
	}
	return picked
}

// readPath reads a file, or the manifests in a directory.
func readPath(fsys fs.FS, name string) ([]*unstructured.Unstructured, error) {
	info, err := fs.Stat(fsys, name)
	if err != nil {
		return nil, withoutPath(err)
	}
	if !info.IsDir() {
		return readFile(fsys, name)
	}
	entries, err := fs.ReadDir(fsys, name)
	if err != nil {
		return nil, withoutPath(err)
	}
	var all []*unstructured.Unstructured
	for _, e := range entries {
		if e.IsDir() || !isManifest(e.Name()) {
			continue
		}
		objects, err := readFile(fsys, path.Join(name, e.Name()))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.Name(), err)
		}
		all = append(all, objects...)
	}
	return all, nil
}

func isManifest(name string) bool {
	base := strings.TrimSuffix(name, path.Ext(name))
	return slices.Contains([]string{".yaml", ".yml", ".json"}, path.Ext(name)) &&
		base != "kustomization" && base != "kustomizeconfig"
}

func readFile(fsys fs.FS, name string) ([]*unstructured.Unstructured, error) {
	data, err := fs.ReadFile(fsys, name)
	if err != nil {
		return nil, withoutPath(err)
	}
	return parse(data)
}

// withoutPath returns the cause of an error of package fs. The callers name the path.
func withoutPath(err error) error {
	var of *fs.PathError
	if errors.As(err, &of) {
		return of.Err
	}
	return err
}

// parse returns the objects of YAML documents. Empty documents are skipped.
func parse(data []byte) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	n := 0
	for document, err := range documents.Split(data) {
		n++
		var object map[string]any
		if err == nil {
			err = documents.Decode(document, &object)
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
		if len(object) == 0 {
			continue
		}
		u := &unstructured.Unstructured{Object: object}
		if !u.IsList() {
			all = append(all, u)
			continue
		}
		err = u.EachListItem(func(item runtime.Object) error {
			all = append(all, item.(*unstructured.Unstructured))
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
	}
	return all, nil
}

func fromObject(o runtime.Object) (*unstructured.Unstructured, error) {
	if u, ok := o.(*unstructured.Unstructured); ok {
		return u.DeepCopy(), nil
	}
	kind := o.GetObjectKind().GroupVersionKind()
	if kind.Empty() {
		var err error
		if kind, err = kindOf(o); err != nil {
			return nil, err
		}
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, fmt.Errorf("%T: %w", o, err)
	}
	u := &unstructured.Unstructured{Object: object}
	u.SetGroupVersionKind(kind)
	unstructured.RemoveNestedField(object, "metadata", "creationTimestamp")
	return u, nil
}

func kindOf(o runtime.Object) (schema.GroupVersionKind, error) {
	for _, scheme := range []*runtime.Scheme{
		clientscheme.Scheme, apiextensionsscheme.Scheme, aggregatorscheme.Scheme,
	} {
		if kinds, _, err := scheme.ObjectKinds(o); err == nil {
			return kinds[0], nil
		}
	}
	return schema.GroupVersionKind{}, fmt.Errorf("%T has no apiVersion and kind", o)
}
