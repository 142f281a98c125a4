// Package v1 has the kind of a small operator: a Greeting, which becomes a ConfigMap.
package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and the version of the kind.
var GroupVersion = schema.GroupVersion{Group: "greetings.example.com", Version: "v1"}

// Greeting asks for a ConfigMap of the same name with a text that greets somebody.
type Greeting struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   GreetingSpec   `json:"spec"`
	Status GreetingStatus `json:"status,omitempty"`
}

// GreetingSpec says whom to greet.
type GreetingSpec struct {
	Name string `json:"name"`
}

// GreetingStatus is what the controller has done.
type GreetingStatus struct {
	Text string `json:"text,omitempty"`
}

// GreetingList is a list of greetings.
type GreetingList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Greeting `json:"items"`
}

// AddToScheme registers the kind.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &Greeting{}, &GreetingList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}

// DeepCopyObject implements runtime.Object.
func (g *Greeting) DeepCopyObject() runtime.Object {
	c := *g
	c.ObjectMeta = *g.ObjectMeta.DeepCopy()
	return &c
}

// DeepCopyObject implements runtime.Object.
func (l *GreetingList) DeepCopyObject() runtime.Object {
	c := *l
	c.ListMeta = *l.ListMeta.DeepCopy()
	c.Items = make([]Greeting, len(l.Items))
	for i := range l.Items {
		c.Items[i] = *l.Items[i].DeepCopyObject().(*Greeting)
	}
	return &c
}
