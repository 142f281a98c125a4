package apitest

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

func TestAdmissionNamespaceExists(t *testing.T) {
	t.Parallel()
	s, namespace := shared(t)
	p := newPlugin(t, "NamespaceExists", kubernetes.NewForConfigOrDie(s.RESTConfig()))
	here, nowhere := metav1.ObjectMeta{Name: "x", Namespace: namespace},
		metav1.ObjectMeta{Name: "x", Namespace: "nowhere"}
	if err := ask(t, p, "configmaps", &corev1.ConfigMap{ObjectMeta: here}, nil); err != nil {
		t.Errorf("create in an existing namespace: %v", err)
	}
	if err := ask(t, p, "configmaps",
		&corev1.ConfigMap{ObjectMeta: nowhere}, nil); !apierrors.IsNotFound(err) {
		t.Errorf("create in a missing namespace: got %v, want NotFound", err)
	}
	if err := ask(t, p, "configmaps", &corev1.ConfigMap{ObjectMeta: nowhere},
		&corev1.ConfigMap{}); !apierrors.IsNotFound(err) {
		t.Errorf("update in a missing namespace: got %v, want NotFound", err)
	}
	if err := ask(t, p, "namespaces", &corev1.Namespace{ObjectMeta: nowhere}, nil); err != nil {
		t.Errorf("create a namespace: %v", err)
	}
	if err := ask(t, p, "nodes", &corev1.Node{}, nil); err != nil {
		t.Errorf("create a cluster-scoped object: %v", err)
	}
}

func TestAdmissionNamespaceAutoProvision(t *testing.T) {
	t.Parallel()
	_, client := quiet(t)
	p := newPlugin(t, "NamespaceAutoProvision", client)
	for range 2 {
		if err := ask(t, p, "configmaps", &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "provided"},
		}, nil); err != nil {
			t.Error(err)
		}
	}
	must(client.CoreV1().Namespaces().Get(t.Context(), "provided", metav1.GetOptions{}))(t)
	if err := ask(t, p, "configmaps", &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "updated"},
	}, &corev1.ConfigMap{}); err != nil {
		t.Error(err)
	}
	if _, err := client.CoreV1().Namespaces().Get(t.Context(), "updated",
		metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("an update created the namespace: %v", err)
	}
}
