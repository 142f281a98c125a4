package apitest

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAdmissionDefaultStorageClass(t *testing.T) {
	t.Parallel()
	_, client := quiet(t)
	p := newPlugin(t, "DefaultStorageClass", client)
	got := func(change func(*corev1.PersistentVolumeClaim)) string {
		claim := &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "default"},
		}
		if change != nil {
			change(claim)
		}
		if err := ask(t, p, "persistentvolumeclaims", claim, nil); err != nil {
			t.Error(err)
		}
		if claim.Spec.StorageClassName == nil {
			return "-"
		}
		return *claim.Spec.StorageClassName
	}
	addClass := func(name, annotation, value string) {
		must(client.StorageV1().StorageClasses().Create(t.Context(), &storagev1.StorageClass{
			ObjectMeta:  metav1.ObjectMeta{Name: name, Annotations: map[string]string{annotation: value}},
			Provisioner: "example.com/p",
		}, metav1.CreateOptions{}))(t)
	}
	addClass("no", "storageclass.kubernetes.io/is-default-class", "false")
	if c := got(nil); c != "-" {
		t.Errorf("without a default, got class %s", c)
	}
	addClass("old", "storageclass.beta.kubernetes.io/is-default-class", "true")
	if c := got(nil); c != "old" {
		t.Errorf("got class %s, want old", c)
	}
	for name, change := range map[string]func(*corev1.PersistentVolumeClaim){
		"other": func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = new("other") },
		"":      func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = new("") },
		"-": func(c *corev1.PersistentVolumeClaim) {
			c.Annotations = map[string]string{corev1.BetaStorageClassAnnotation: "x"}
		},
	} {
		if c := got(change); c != name {
			t.Errorf("got class %q, want the claim's class %q", c, name)
		}
	}
}
