package apitest

import (
	"bytes"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest"
)

// clients are the clients of a control plane that the tests of snapshots use.
type clients struct {
	*kubernetes.Clientset
	api     servertest.API
	crds    *apiextensionsclient.Clientset
	dynamic *dynamic.DynamicClient
}

func clientsOf(t *testing.T, s *server.Server) clients {
	t.Helper()
	config, err := s.InProcessConfig("tester", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	return clients{
		kubernetes.NewForConfigOrDie(config), s, apiextensionsclient.NewForConfigOrDie(config),
		dynamic.NewForConfigOrDie(config),
	}
}

func (c clients) widgets(group string) dynamic.ResourceInterface {
	return c.dynamic.Resource(schema.GroupVersionResource{
		Group: group, Version: "v1", Resource: "widgets",
	}).Namespace(metav1.NamespaceDefault)
}

func widget(group, name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": group + "/v1", "kind": "Widget", "metadata": map[string]any{"name": name},
	}}
}

// widgets returns the CRD of widgets in a group.
func widgets(group string) *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Kind: "Widget"},
			Scope: apiextensionsv1.NamespaceScoped,
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{
					OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"},
				},
			}},
		},
	}
}

func named(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Data:       map[string]string{"color": "green"},
	}
}

// define creates CRDs of widgets in groups g0.example.com and so on.
func define(t *testing.T, s *server.Server, n int) {
	t.Helper()
	var objects []runtime.Object
	for i := range n {
		objects = append(objects, widgets(fmt.Sprintf("g%d.example.com", i)))
	}
	servertest.CRDs(t, s, servertest.Objects(objects...))
}

func takeSnapshot(t *testing.T, s *server.Server) *server.Snapshot {
	t.Helper()
	snapshot, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return snapshot
}

// awaitRootCertificates waits until each namespace has the root certificates, which a control loop
// publishes. A snapshot taken before lacks them.
func awaitRootCertificates(t *testing.T, c clients) {
	t.Helper()
	await(t, "the root certificates are published", func() bool {
		namespaces, err := c.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
		ok(t, err)
		for _, n := range namespaces.Items {
			if _, err := c.CoreV1().ConfigMaps(n.Name).Get(t.Context(), "kube-root-ca.crt",
				metav1.GetOptions{}); err != nil {
				return false
			}
		}
		return true
	})
}

// written returns the snapshot as it is after it was in a file.
func written(t *testing.T, snapshot *server.Snapshot) *server.Snapshot {
	t.Helper()
	var file bytes.Buffer
	if n, err := snapshot.WriteTo(&file); err != nil || n != int64(file.Len()) {
		t.Fatalf("wrote %d of %d bytes: %v", n, file.Len(), err)
	}
	read, err := server.ReadSnapshot(&file)
	if err != nil {
		t.Fatal(err)
	}
	return read
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
