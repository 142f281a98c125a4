package servertest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	apiextensionsscheme "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/scheme"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	aggregatorscheme "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/scheme"

	"github.com/kinproc/kinproc/server/internal/install"
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
			files, err := install.ReadPath(p, os.ReadFile)
			if err != nil {
				return nil, err
			}
			all = append(all, objectsOf(files)...)
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
			files, err := install.Read(fsys, p,
				func(file string) ([]byte, error) { return fs.ReadFile(fsys, file) })
			if err != nil {
				return nil, fmt.Errorf("%s: %w", p, err)
			}
			all = append(all, objectsOf(files)...)
		}
		return all, nil
	}}
}

// YAML is the source of the manifests in a text of one or more YAML or JSON documents.
func YAML(text string) Source {
	return Source{func() ([]*unstructured.Unstructured, error) {
		return install.Decode([]byte(text))
	}}
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

func objectsOf(files []install.File) (all []*unstructured.Unstructured) {
	for _, f := range files {
		all = append(all, f.Objects...)
	}
	return all
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
