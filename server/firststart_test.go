package server

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// TestFirstObjectsAreAsCreated holds what a first start writes to etcd against what the API makes of a create request.
func TestFirstObjectsAreAsCreated(t *testing.T) {
	t.Parallel()
	s, err := New(Options{Controllers: []string{"-*"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	objects, err := s.plane.firstObjects()
	if err != nil {
		t.Fatal(err)
	}
	config := rest.CopyConfig(s.plane.self.config)
	config.ContentConfig = rest.ContentConfig{}
	client := dynamic.NewForConfigOrDie(config)
	for _, o := range objects {
		gvr := o.resource.WithVersion("v1")
		c := client.Resource(gvr).Namespace(o.object.GetNamespace())
		name := o.object.GetName()
		stored, err := c.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		request := withoutServerFields(stored)
		copied, ok := copyName(o.resource.Resource, name)
		if !ok {
			continue
		}
		request.SetName(copied)
		options := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldManager: o.manager}
		created, err := c.Create(t.Context(), request, options)
		if err != nil {
			t.Errorf("%s %s: %v", gvr.Resource, name, err)
			continue
		}
		if diff := cmp.Diff(owned(t, created, o.manager), owned(t, stored, o.manager)); diff != "" {
			t.Errorf("%s %s, created (-) and stored (+):\n%s", gvr.Resource, name, diff)
		}
	}
}

// copyName is a name that is free and fits the kind; there is none where the name decides what else is valid.
func copyName(resource, name string) (string, bool) {
	switch {
	case resource == "apiservices", resource == "priorityclasses", resource != "clusterroles" && name == "exempt":
		return "", false
	}
	return name + "-copy", true
}

// withoutServerFields is what a client would have sent.
func withoutServerFields(obj *unstructured.Unstructured) *unstructured.Unstructured {
	obj = obj.DeepCopy()
	for _, field := range []string{"uid", "resourceVersion", "creationTimestamp", "managedFields", "generation"} {
		unstructured.RemoveNestedField(obj.Object, "metadata", field)
	}
	unstructured.RemoveNestedField(obj.Object, "status")
	if obj.GetKind() == "Namespace" {
		unstructured.RemoveNestedField(obj.Object, "spec")
		unstructured.RemoveNestedField(obj.Object, "metadata", "labels")
	}
	return obj
}

// owned is all of the object that the two ways of making it have to agree on: everything but names, identities, times, and what
// other managers have written since.
func owned(t *testing.T, obj *unstructured.Unstructured, manager string) string {
	t.Helper()
	obj = obj.DeepCopy()
	var fields []string
	for _, entry := range obj.GetManagedFields() {
		if entry.Manager == manager && entry.Subresource == "" {
			fields = append(fields, entry.APIVersion+" "+string(entry.Operation)+" "+entry.FieldsV1.GetRawString())
		}
	}
	for _, field := range []string{"uid", "resourceVersion", "creationTimestamp", "managedFields", "name"} {
		unstructured.RemoveNestedField(obj.Object, "metadata", field)
	}
	if obj.GetKind() != "Namespace" {
		unstructured.RemoveNestedField(obj.Object, "status")
	}
	unstructured.RemoveNestedField(obj.Object, "metadata", "labels", "kubernetes.io/metadata.name") // the name again
	data, err := json.MarshalIndent(obj.Object, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(append(fields, string(data)), "\n")
}
