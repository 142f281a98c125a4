package server_test

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest"
)

// offByDefault are the versions that only --runtime-config switches on.
var offByDefault = []string{
	"admissionregistration.k8s.io/v1alpha1", "admissionregistration.k8s.io/v1beta1",
	"certificates.k8s.io/v1beta1",
	"coordination.k8s.io/v1alpha2", "coordination.k8s.io/v1beta1",
	"resource.k8s.io/v1beta1", "resource.k8s.io/v1beta2",
	"storagemigration.k8s.io/v1", "storagemigration.k8s.io/v1beta1",
}

func TestRuntimeConfigSwitchesVersionsOn(t *testing.T) {
	t.Parallel()
	for _, on := range []bool{false, true} {
		s := servertest.Run(t, servertest.WithoutControllers, func(o *server.Options) {
			if on {
				o.RuntimeConfig = map[string]string{"api/all": "true"}
			}
		})
		client, err := discovery.NewDiscoveryClientForConfig(s.RESTConfig())
		if err != nil {
			t.Fatal(err)
		}
		_, lists, err := client.ServerGroupsAndResources()
		if err != nil {
			t.Fatal(err)
		}
		var served []string
		for _, list := range lists {
			served = append(served, list.GroupVersion)
		}
		for _, gv := range offByDefault {
			if slices.Contains(served, gv) != on {
				t.Errorf("everything on: %t, %s served: %t", on, gv, !on)
			}
		}
		if on {
			everyResourceLists(t, s, lists)
			writeOldReadNew(t, s)
		}
	}
}

func everyResourceLists(t *testing.T, s *server.Server, lists []*metav1.APIResourceList) {
	t.Helper()
	client, err := dynamic.NewForConfig(s.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list.APIResources {
			if strings.Contains(r.Name, "/") || !slices.Contains(r.Verbs, "list") {
				continue
			}
			if _, err := client.Resource(gv.WithResource(r.Name)).List(t.Context(), metav1.ListOptions{}); err != nil {
				t.Errorf("list %s of %s: %v", r.Name, gv, err)
			}
		}
	}
}

// writeOldReadNew writes objects in old versions, applies them, and reads them in new ones, with the defaults of these.
func writeOldReadNew(t *testing.T, s *server.Server) {
	t.Helper()
	client, err := dynamic.NewForConfig(s.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	device := map[string]any{"name": "d", "deviceClassName": "gpu.example.com"}
	for _, c := range []struct {
		group, resource, kind, namespace, from, to string
		spec                                       map[string]any
		path                                       []string
		want                                       any
	}{
		{"resource.k8s.io", "resourceclaims", "ResourceClaim", "default", "v1beta1", "v1",
			map[string]any{"devices": map[string]any{"requests": []any{device}}},
			[]string{"exactly", "allocationMode"}, "ExactCount"},
		{"resource.k8s.io", "resourceclaims", "ResourceClaim", "default", "v1beta2", "v1beta1",
			map[string]any{"devices": map[string]any{"requests": []any{map[string]any{"name": "d", "exactly": map[string]any{"deviceClassName": "gpu.example.com"}}}}},
			[]string{"allocationMode"}, "ExactCount"},
		{"coordination.k8s.io", "leasecandidates", "LeaseCandidate", "default", "v1alpha2", "v1beta1",
			map[string]any{"leaseName": "l", "binaryVersion": "1.2.3", "emulationVersion": "1.2.3", "strategy": "OldestEmulationVersion"},
			[]string{"leaseName"}, "l"},
	} {
		gv := schema.GroupVersion{Group: c.group, Version: c.from}
		obj := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": gv.String(), "kind": c.kind, "metadata": map[string]any{"name": "from-" + c.from}, "spec": c.spec,
		}}
		options := metav1.ApplyOptions{FieldManager: "test"}
		if _, err := client.Resource(gv.WithResource(c.resource)).Namespace(c.namespace).Apply(t.Context(), obj.GetName(), obj, options); err != nil {
			t.Errorf("%s %s: %v", gv, c.kind, err)
			continue
		}
		gv.Version = c.to
		got, err := client.Resource(gv.WithResource(c.resource)).Namespace(c.namespace).Get(t.Context(), obj.GetName(), metav1.GetOptions{})
		if err != nil {
			t.Errorf("%s %s: %v", gv, c.kind, err)
			continue
		}
		in := got.Object["spec"].(map[string]any)
		if requests, ok, _ := unstructured.NestedSlice(in, "devices", "requests"); ok {
			in = requests[0].(map[string]any)
		}
		if value, _, _ := unstructured.NestedFieldNoCopy(in, c.path...); value != c.want || got.GetAPIVersion() != gv.String() {
			t.Errorf("%s: want %v at %v, got %v", gv, c.want, c.path, got.Object)
		}
	}
}
