package conformance_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest"
)

// objects returns one valid object of every kind.
func objects(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	data, err := os.ReadFile("testdata/objects.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var list []*unstructured.Unstructured
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	for {
		obj := &unstructured.Unstructured{}
		if err := decoder.Decode(&obj.Object); errors.Is(err, io.EOF) {
			return list
		} else if err != nil {
			t.Fatal(err)
		}
		list = append(list, obj)
	}
}

// stored returns the resources that store objects, as found by discovery, keyed by
// GroupVersionKind.
func stored(t *testing.T, config *rest.Config) map[schema.GroupVersionKind]metav1.APIResource {
	t.Helper()
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	_, lists, err := client.ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	found := map[schema.GroupVersionKind]metav1.APIResource{}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list.APIResources {
			if !strings.Contains(r.Name, "/") && slices.Contains(r.Verbs, "list") {
				r.Group, r.Version = gv.Group, gv.Version
				found[gv.WithKind(r.Kind)] = r
			}
		}
	}
	return found
}

// createAll creates one object of every kind and returns the resource of each.
func createAll(t *testing.T, s *server.Server) map[schema.GroupVersionKind]metav1.APIResource {
	t.Helper()
	config := rest.CopyConfig(s.RESTConfig())
	config.WarningHandler = rest.NoWarnings{}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	resources := stored(t, config)
	for _, obj := range objects(t) {
		gvk := obj.GroupVersionKind()
		r, ok := resources[gvk]
		if !ok && gvk.Group == "simple.extension.io" {
			r, ok = metav1.APIResource{
				Group:      gvk.Group,
				Version:    gvk.Version,
				Name:       "crontabs",
				Namespaced: true,
				Kind:       gvk.Kind,
			}, true
			resources[gvk] = r
		}
		if !ok {
			t.Errorf("%s is not served", gvk)
			continue
		}
		gvr := gvk.GroupVersion().WithResource(r.Name)
		if err := create(t.Context(),
			client.Resource(gvr).Namespace(obj.GetNamespace()), obj); err != nil {
			t.Errorf("%s: %v", gvk, err)
		}
	}
	return resources
}

// create creates obj, waiting for its resource to be served if it is a custom resource.
func create(
	ctx context.Context, client dynamic.ResourceInterface, obj *unstructured.Unstructured,
) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		_, err := client.Create(ctx, obj, metav1.CreateOptions{})
		if !apierrors.IsNotFound(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

// encoding describes a stored value: its format, and the apiVersion and kind in it.
type encoding struct {
	protobuf         bool
	apiVersion, kind string
}

func encodingOf(t *testing.T, value []byte) encoding {
	t.Helper()
	if data, ok := bytes.CutPrefix(value, []byte("k8s\x00")); ok {
		var unknown runtime.Unknown
		if err := unknown.Unmarshal(data); err != nil {
			t.Fatal(err)
		}
		return encoding{true, unknown.APIVersion, unknown.Kind}
	}
	var meta metav1.TypeMeta
	if err := json.Unmarshal(value, &meta); err != nil {
		t.Fatalf("the value is neither protobuf nor JSON: %v", err)
	}
	return encoding{false, meta.APIVersion, meta.Kind}
}

// directories matches the key prefix of a resource, also where that is more than the resource's
// name or a different name.
var directories = regexp.MustCompile(`^/registry/(services/specs|services/endpoints|ranges|` +
	`apiregistration\.k8s\.io/[^/]+|apiextensions\.k8s\.io/[^/]+|simple\.extension\.io/[^/]+|` +
	`[^/]+)/`)

// layout describes how the objects below a key prefix are stored.
type layout struct {
	encoding
	depth int // 1 for keys that end in a name, 2 for a namespace and a name
}

func layouts(t *testing.T, entries map[string]entry) map[string]layout {
	t.Helper()
	found := map[string]layout{}
	for key, e := range entries {
		dir := directories.FindString(key)
		if dir == "" { // a key without a prefix, of a single object
			dir = key
		}
		found[dir] = layout{encodingOf(t, e.value), strings.Count(strings.TrimPrefix(key, dir), "/") + 1}
	}
	return found
}

// otherDirectories maps resources to their key prefix where that is not the resource's name.
var otherDirectories = map[string]string{
	"nodes":                  "minions",
	"services":               "services/specs",
	"endpoints":              "services/endpoints",
	"ingresses":              "ingress",
	"replicationcontrollers": "controllers",
}

func TestKeepsObjectsWhereAndAsARealClusterDoes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var resources map[schema.GroupVersionKind]metav1.APIResource
	t.Run("write", func(t *testing.T) {
		s := servertest.Run(t, servertest.WithoutControllers, withoutServiceAccounts,
			func(o *server.Options) {
				o.DataDir = dir
			})
		resources = createAll(t, s)
	})
	written, _ := readDir(t, filepath.Join(dir, "etcd"))
	real, _ := readDir(t, filepath.Join(restored(t), "etcd"))

	got := layouts(t, written)
	for dir, want := range layouts(t, real) {
		switch dir {
		case "/registry/masterleases/", "/registry/peerserverleases/":
			continue // written only by API servers that share an etcd
		}
		if got[dir] != want {
			t.Errorf("%s: got %+v, want %+v", dir, got[dir], want)
		}
	}
	for gvk, r := range resources {
		if gvk.Kind == "ComponentStatus" || gvk == (schema.GroupVersionKind{
			Group:   "autoscaling",
			Version: "v1",
			Kind:    "HorizontalPodAutoscaler",
		}) {
			continue // the first is not stored, the second is stored as v2
		}
		directory := r.Name
		if other, ok := otherDirectories[r.Name]; ok {
			directory = other
		}
		want := layout{encoding{true, gvk.GroupVersion().String(), gvk.Kind}, 1}
		switch gvk.Group {
		case "apiextensions.k8s.io", "apiregistration.k8s.io", "simple.extension.io":
			directory, want.protobuf = gvk.Group+"/"+r.Name, false
			if gvk.Kind == "CustomResourceDefinition" {
				want.apiVersion = "apiextensions.k8s.io/v1beta1"
			}
		case "events.k8s.io":
			want.apiVersion = "v1"
		case "certificates.k8s.io", "resource.k8s.io", "storagemigration.k8s.io":
			// a v1 new in 1.37 is stored in a version that 1.36 can read
			if older, ok := map[string]string{
				"ClusterTrustBundle":      "v1beta1",
				"PodCertificateRequest":   "v1beta1",
				"DeviceTaintRule":         "v1beta2",
				"StorageVersionMigration": "v1beta1",
			}[gvk.Kind]; ok {
				want.apiVersion = gvk.Group + "/" + older
			}
		}
		if r.Namespaced {
			want.depth = 2
		}
		if l := got["/registry/"+directory+"/"]; l != want {
			t.Errorf("%s: got %+v in %s, want %+v", gvk, l, directory, want)
		}
	}
	if len(resources) < 55 {
		t.Errorf("only %d resources store objects", len(resources))
	}
}
