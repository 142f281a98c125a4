package server

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	aggregatorscheme "k8s.io/kube-aggregator/pkg/apiserver/scheme"

	"github.com/kinproc/kinproc/chain/core"
)

// TestFirstObjectsAreAsCreated compares the objects that a first start writes to etcd directly with
// the same objects created through the API.
func TestFirstObjectsAreAsCreated(t *testing.T) {
	t.Parallel()
	s := start(t, Options{Controllers: []string{"-*"}})
	objects, err := up(s, "the test").bootstrap.First()
	if err != nil {
		t.Fatal(err)
	}
	config := rest.CopyConfig(up(s, "the test").requests.Config)
	config.ContentConfig = rest.ContentConfig{}
	client := dynamic.NewForConfigOrDie(config)
	for _, o := range objects {
		gvr, name := resourceOf(t, o), o.GetName()
		c := client.Resource(gvr).Namespace(o.GetNamespace())
		manager := creator(o)
		stored, err := c.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		request := withoutServerFields(stored)
		copied, ok := copyName(gvr.Resource, name)
		if !ok {
			continue
		}
		request.SetName(copied)
		options := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldManager: manager}
		created, err := c.Create(t.Context(), request, options)
		if err != nil {
			t.Errorf("%s %s: %v", gvr.Resource, name, err)
			continue
		}
		if diff := cmp.Diff(owned(t, created, manager), owned(t, stored, manager)); diff != "" {
			t.Errorf("%s %s: created (-), stored (+):\n%s", gvr.Resource, name, diff)
		}
	}
}

// TestFirstObjectsAreNew compares the first objects of two control planes of a process.
func TestFirstObjectsAreNew(t *testing.T) {
	t.Parallel()
	seen := map[types.UID]string{}
	for range 2 {
		s, err := New(Options{})
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now().Truncate(time.Second)
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Stop(context.Background()); err != nil {
				t.Error(err)
			}
		})
		objects, err := up(s, "the test").bootstrap.First()
		if err != nil {
			t.Fatal(err)
		}
		client := dynamic.NewForConfigOrDie(s.RESTConfig())
		for _, o := range objects {
			gvr := resourceOf(t, o)
			stored, err := client.Resource(gvr).Namespace(o.GetNamespace()).Get(t.Context(), o.GetName(),
				metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			name := gvr.Resource + " " + o.GetName()
			if other, ok := seen[stored.GetUID()]; ok {
				t.Errorf("%s has the UID of %s", name, other)
			}
			seen[stored.GetUID()] = name
			for _, at := range times(t, stored) {
				if at.Before(begun) {
					t.Errorf("%s has the time %v, but the control plane was started at %v", name, at, begun)
				}
			}
		}
	}
}

// times returns the times at which an object was created and changed.
func times(t *testing.T, o *unstructured.Unstructured) []time.Time {
	t.Helper()
	all := []time.Time{o.GetCreationTimestamp().Time}
	for _, m := range o.GetManagedFields() {
		all = append(all, m.Time.Time)
	}
	conditions, _, err := unstructured.NestedSlice(o.Object, "status", "conditions")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range conditions {
		at, _, _ := unstructured.NestedString(c.(map[string]any), "lastTransitionTime")
		parsed, err := time.Parse(time.RFC3339, at)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, parsed)
	}
	return all
}

// TestFirstFlowSchemasHaveTheirStatus compares the status of a FlowSchema of the first start with
// the status that the API server's controller gives to a copy.
func TestFirstFlowSchemasHaveTheirStatus(t *testing.T) {
	t.Parallel()
	s := start(t, Options{})
	schemas := kubernetes.NewForConfigOrDie(s.RESTConfig()).FlowcontrolV1().FlowSchemas()
	first, err := schemas.Get(t.Context(), "service-accounts", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	made := &flowcontrolv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: "copy"}, Spec: first.Spec}
	if made, err = schemas.Create(t.Context(), made, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	err = wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, time.Minute, true,
		func(ctx context.Context) (bool, error) {
			made, err = schemas.Get(ctx, made.Name, metav1.GetOptions{})
			return err == nil && len(made.Status.Conditions) > 0, err
		})
	if err != nil {
		t.Fatal(err)
	}
	ignoreTimes := cmpopts.IgnoreTypes(metav1.Time{}, &metav1.Time{})
	if diff := cmp.Diff(made.Status, first.Status, ignoreTimes); diff != "" {
		t.Errorf("status by the controller (-), of the first start (+):\n%s", diff)
	}
	if diff := cmp.Diff(made.ManagedFields[0], first.ManagedFields[0], ignoreTimes); diff != "" {
		t.Errorf("managed fields by the controller (-), of the first start (+):\n%s", diff)
	}
}

// creator returns the field manager that created the object.
func creator(o metav1.Object) string {
	managed := o.GetManagedFields()
	i := slices.IndexFunc(managed, func(m metav1.ManagedFieldsEntry) bool {
		return m.Operation == metav1.ManagedFieldsOperationUpdate
	})
	return managed[i].Manager
}

func resourceOf(t *testing.T, obj runtime.Object) schema.GroupVersionResource {
	t.Helper()
	builtIn, err := core.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	for _, scheme := range []*runtime.Scheme{builtIn, aggregatorscheme.Scheme} {
		if kinds, _, err := scheme.ObjectKinds(obj); err == nil {
			gvr, _ := meta.UnsafeGuessKindToResource(kinds[0])
			gvr.Version = "v1"
			return gvr
		}
	}
	t.Fatalf("no scheme has %T", obj)
	return schema.GroupVersionResource{}
}

// copyName returns an unused name for a copy of the object. It returns false if other fields are
// only valid with the original name.
func copyName(resource, name string) (string, bool) {
	switch {
	case resource == "apiservices", resource == "priorityclasses",
		resource != "clusterroles" && name == "exempt":
		return "", false
	case resource == "ipaddresses":
		return "10.0.0.77", true
	}
	return name + "-copy", true
}

// withoutServerFields returns the object as a client would have sent it.
func withoutServerFields(obj *unstructured.Unstructured) *unstructured.Unstructured {
	obj = obj.DeepCopy()
	for _, field := range []string{
		"uid", "resourceVersion", "creationTimestamp", "managedFields", "generation",
	} {
		unstructured.RemoveNestedField(obj.Object, "metadata", field)
	}
	unstructured.RemoveNestedField(obj.Object, "status")
	if obj.GetKind() == "Service" { // the server sets them with clusterIP
		unstructured.RemoveNestedField(obj.Object, "spec", "clusterIPs")
		unstructured.RemoveNestedField(obj.Object, "spec", "ipFamilies")
	}
	if obj.GetKind() == "Namespace" {
		unstructured.RemoveNestedField(obj.Object, "spec")
		unstructured.RemoveNestedField(obj.Object, "metadata", "labels")
	}
	return obj
}

// owned returns the part of the object that must be the same however it was created: everything
// except names, UIDs, resource versions, times, and changes by other field managers.
func owned(t *testing.T, obj *unstructured.Unstructured, manager string) string {
	t.Helper()
	obj = obj.DeepCopy()
	var fields []string
	for _, entry := range obj.GetManagedFields() {
		if entry.Manager == manager && entry.Subresource == "" {
			fields = append(fields, entry.APIVersion+" "+string(entry.Operation)+" "+
				entry.FieldsV1.GetRawString())
		}
	}
	for _, field := range []string{
		"uid", "resourceVersion", "creationTimestamp", "managedFields", "name",
	} {
		unstructured.RemoveNestedField(obj.Object, "metadata", field)
	}
	if obj.GetKind() != "Namespace" {
		unstructured.RemoveNestedField(obj.Object, "status")
	}
	// repeats the name
	unstructured.RemoveNestedField(obj.Object, "metadata", "labels", "kubernetes.io/metadata.name")
	data, err := json.MarshalIndent(obj.Object, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(append(fields, string(data)), "\n")
}
