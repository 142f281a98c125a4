package main

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var groupVersion = schema.GroupVersion{Group: "chat.example.com", Version: "v1"}

// Room is where people talk.
type Room struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              RoomSpec `json:"spec,omitempty"`
}

// RoomSpec describes a room.
type RoomSpec struct {
	// Topic is what people talk about.
	Topic string `json:"topic,omitempty"`
	// Seats is how many people may be in the room at a time.
	Seats int32 `json:"seats,omitempty"`
}

// SwaggerDoc returns what kubectl explain says about the fields.
func (RoomSpec) SwaggerDoc() map[string]string {
	return map[string]string{
		"":      "What the room is like.",
		"topic": "What people talk about.",
		"seats": "How many people may be in the room at a time. Default: 10.",
	}
}

// RoomList is a list of rooms.
type RoomList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Room `json:"items"`
}

func addToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(groupVersion, &Room{}, &RoomList{})
	metav1.AddToGroupVersion(scheme, groupVersion)
	return nil
}

// For larger types, deepcopy-gen (k8s.io/code-generator) generates the code below.

// DeepCopyObject implements runtime.Object.
func (r *Room) DeepCopyObject() runtime.Object {
	out := *r
	r.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return &out
}

// DeepCopyObject implements runtime.Object.
func (l *RoomList) DeepCopyObject() runtime.Object {
	out := *l
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = slices.Clone(l.Items)
	for i := range out.Items {
		l.Items[i].ObjectMeta.DeepCopyInto(&out.Items[i].ObjectMeta)
	}
	return &out
}
