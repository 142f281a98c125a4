package main

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kinproc/kinproc/chain/kind"
)

var groupVersion = schema.GroupVersion{Group: "notes.example.com", Version: "v1"}

// Note is a text.
type Note struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Text              string `json:"text"`
}

// NoteList is a list of notes.
type NoteList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Note `json:"items"`
}

// notes declares the API group.
func notes() kind.Group {
	return kind.Group{
		Name:     groupVersion.Group,
		Versions: []kind.GroupVersion{{Version: groupVersion.Version, AddToScheme: addToScheme}},
		Kinds: []kind.Declaration{&kind.Kind[*Note]{
			Plural: "notes",
			Table: kind.Table[*Note]{
				Columns: []kind.Column{kind.NameColumn(), {Name: "Text"}},
				Row:     func(n *Note) []any { return []any{n.Name, n.Text} },
			},
		}},
	}
}

func addToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(groupVersion, &Note{}, &NoteList{})
	metav1.AddToGroupVersion(scheme, groupVersion)
	return nil
}

// DeepCopyObject implements runtime.Object.
func (n *Note) DeepCopyObject() runtime.Object {
	out := *n
	n.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return &out
}

// DeepCopyObject implements runtime.Object.
func (l *NoteList) DeepCopyObject() runtime.Object {
	out := *l
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = make([]Note, len(l.Items))
	for i := range l.Items {
		out.Items[i] = *l.Items[i].DeepCopyObject().(*Note)
	}
	return &out
}
