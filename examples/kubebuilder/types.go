// Package kubebuilder is an operator in the shape of a kubebuilder scaffold: a custom resource, a
// reconciler, and webhooks on controller-runtime, with the manifests that controller-gen writes for
// them in config. See suite_test.go for the set-up of its tests.
package kubebuilder

import (
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var groupVersion = schema.GroupVersion{Group: "cache.example.com", Version: "v1alpha1"}

// Memcached is a number of memcached servers.
type Memcached struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   MemcachedSpec   `json:"spec,omitempty"`
	Status MemcachedStatus `json:"status,omitempty"`
}

// MemcachedSpec is what the user wants.
type MemcachedSpec struct {
	// Size is the number of servers. The webhook sets it to 1 if it is 0.
	Size int32 `json:"size,omitempty"`
}

// MemcachedStatus is what the reconciler did.
type MemcachedStatus struct {
	Size int32 `json:"size,omitempty"`
}

// MemcachedList is a list of Memcacheds.
type MemcachedList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Memcached `json:"items"`
}

// DeepCopyObject returns a copy.
func (m *Memcached) DeepCopyObject() runtime.Object {
	out := *m
	m.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return &out
}

// DeepCopyObject returns a copy.
func (l *MemcachedList) DeepCopyObject() runtime.Object {
	out := *l
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = make([]Memcached, len(l.Items))
	for i := range l.Items {
		out.Items[i] = *l.Items[i].DeepCopyObject().(*Memcached)
	}
	return &out
}

// newScheme returns a scheme with the types that the operator uses.
func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(groupVersion, &Memcached{}, &MemcachedList{})
	metav1.AddToGroupVersion(scheme, groupVersion)
	if err := appsv1.AddToScheme(scheme); err != nil {
		panic(err) // two types with the same name
	}
	return scheme
}
