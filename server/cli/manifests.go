package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/kinproc/kinproc/chain/documents"
	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/cli/internal/settings"
)

const (
	// manifestManager is the field manager of the objects that a file kinproc.yaml names.
	manifestManager = "kinproc"
	// manifestPatience is how long to wait until the resources of a CRD are served.
	manifestPatience = 30 * time.Second
)

// applyManifests applies the manifests of kinproc.yaml that have not been applied in this data
// directory. It says how many objects those are.
func (o *startOptions) applyManifests(ctx context.Context, srv *server.Server, w io.Writer) error {
	if o.file == nil || len(o.file.Manifests) == 0 || o.server.ReadOnly {
		return nil
	}
	dir := filepath.Dir(o.file.Path)
	work, err := openWork(dir, os.Geteuid(), o.configNamed())
	if err != nil {
		return err
	}
	defer work.close()
	a, err := newApplier(srv.RESTConfig())
	if err != nil {
		return err
	}
	for _, m := range o.file.Manifests {
		if slices.Contains(o.memory.Applied, m.Path) {
			continue
		}
		number, err := a.applyManifest(ctx, work, m)
		if err != nil {
			return settings.Mistake{Path: o.file.Path, Line: m.Line,
				Err: fmt.Errorf("manifests: %w", err)}
		}
		fmt.Fprintf(w, "kinproc: applied %s of %s\n", count(number, "object"), m.Path)
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

// applier applies objects by server-side apply.
type applier struct {
	dynamic dynamic.Interface
	mapper  *restmapper.DeferredDiscoveryRESTMapper
}

func newApplier(config *rest.Config) (*applier, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	kinds, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	return &applier{client,
		restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(kinds))}, nil
}

// applyManifest applies a file, or the files of a directory in the order of their names.
func (a *applier) applyManifest(
	ctx context.Context, work *privateDir, m settings.Manifest,
) (number int, err error) {
	name, err := work.within(filepath.FromSlash(m.Path))
	if err != nil {
		return 0, fmt.Errorf("%w; copy or move it there", err)
	}
	files, err := filesOf(work, name)
	if err != nil {
		return 0, err
	}
	for _, file := range files {
		data, err := work.read(file)
		if err != nil {
			return number, err
		}
		objects, err := decodeObjects(data)
		if err != nil {
			return number, fmt.Errorf("%s: %w", file, err)
		}
		for _, u := range objects {
			if err := a.apply(ctx, u); err != nil {
				return number, fmt.Errorf("%s: %s %s: %w", file, u.GetKind(), u.GetName(), err)
			}
			number++
		}
	}
	if number == 0 {
		return 0, fmt.Errorf("%s has no objects", m.Path)
	}
	return number, nil
}

// filesOf returns the name of a file, or those of the manifests in a directory.
func filesOf(work *privateDir, name string) ([]string, error) {
	info, err := work.root.Lstat(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("there is no %s in %s", name, work.path)
	}
	if err != nil || !info.IsDir() {
		return []string{name}, err
	}
	dir, err := work.root.Open(name)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	entries, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	slices.Sort(entries)
	var files []string
	for _, e := range entries {
		if isManifest(e) {
			files = append(files, filepath.Join(name, e))
		}
	}
	return files, nil
}

func isManifest(name string) bool {
	return slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name))
}

// decodeObjects returns the objects of a file, with those of lists.
func decodeObjects(data []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	number := 0
	for document, err := range documents.Split(data) {
		number++
		var u unstructured.Unstructured
		if err == nil {
			err = documents.Decode(document, &u.Object)
		}
		switch {
		case err != nil:
			return nil, fmt.Errorf("document %d: %w", number, err)
		case len(u.Object) == 0:
			continue
		case u.GetAPIVersion() == "" || u.GetKind() == "":
			return nil, fmt.Errorf("document %d: it has no apiVersion or no kind", number)
		case u.IsList():
			list, err := u.ToList()
			if err != nil {
				return nil, fmt.Errorf("document %d: %w", number, err)
			}
			for i := range list.Items {
				objects = append(objects, &list.Items[i])
			}
		default:
			objects = append(objects, &u)
		}
	}
	return objects, nil
}

func (a *applier) apply(ctx context.Context, u *unstructured.Unstructured) error {
	kind := u.GroupVersionKind()
	mapping, err := a.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		return fmt.Errorf("there is no such kind in %s; put its CRD before it", kind.GroupVersion())
	}
	if err != nil {
		return err
	}
	var resource dynamic.ResourceInterface = a.dynamic.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		if u.GetNamespace() == "" {
			u.SetNamespace(metav1.NamespaceDefault)
		}
		resource = a.dynamic.Resource(mapping.Resource).Namespace(u.GetNamespace())
	}
	u.SetManagedFields(nil) // a server-side apply refuses them
	_, err = resource.Apply(ctx, u.GetName(), u,
		metav1.ApplyOptions{FieldManager: manifestManager, Force: true})
	if err == nil && kind.GroupKind() == apiextensionsv1.Kind("CustomResourceDefinition") {
		err = a.awaitServed(ctx, u)
	}
	return err
}

// awaitServed waits until the resources of a CRD can be created: until it is established, and
// discovery, which follows, has them.
func (a *applier) awaitServed(ctx context.Context, definition *unstructured.Unstructured) error {
	group, _, _ := unstructured.NestedString(definition.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(definition.Object, "spec", "names", "kind")
	ctx, cancel := context.WithTimeout(ctx, manifestPatience)
	defer cancel()
	definitions := a.dynamic.Resource(apiextensionsv1.SchemeGroupVersion.WithResource(
		"customresourcedefinitions"))
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		u, err := definitions.Get(ctx, definition.GetName(), metav1.GetOptions{})
		if err == nil && isEstablished(u) {
			a.mapper.Reset()
			_, err = a.mapper.RESTMapping(schema.GroupKind{Group: group, Kind: kind})
			if !meta.IsNoMatchError(err) {
				return err
			}
			err = nil
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("its resources are not served: %w", ctx.Err())
		case <-tick.C:
		}
	}
}

func isEstablished(definition *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(definition.Object, "status", "conditions")
	for _, c := range conditions {
		condition, _ := c.(map[string]any)
		if condition["type"] == string(apiextensionsv1.Established) &&
			strings.EqualFold(fmt.Sprint(condition["status"]), "true") {
			return true
		}
	}
	return false
}
