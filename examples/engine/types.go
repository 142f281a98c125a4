package main

import (
	"maps"
	"slices"

	apiextensionsopenapi "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	openapicommon "k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"
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

// For larger types, deepcopy-gen and openapi-gen (k8s.io/code-generator, k8s.io/kube-openapi)
// generate the code below.

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

// Names of the types in OpenAPI documents.
const (
	roomModel     = "com.example.chat.v1.Room"
	roomListModel = "com.example.chat.v1.RoomList"
)

// OpenAPIModelName returns the name of the type in OpenAPI documents.
func (Room) OpenAPIModelName() string { return roomModel }

// OpenAPIModelName returns the name of the type in OpenAPI documents.
func (RoomList) OpenAPIModelName() string { return roomListModel }

// definitions returns the OpenAPI definitions of the types, which kubectl explain and server-side
// apply use.
func definitions(ref openapicommon.ReferenceCallback) map[string]openapicommon.OpenAPIDefinition {
	all := maps.Clone(apiextensionsopenapi.GetOpenAPIDefinitions(ref))
	object := func(
		description string, properties map[string]spec.Schema, needs ...string,
	) openapicommon.OpenAPIDefinition {
		schema := spec.Schema{SchemaProps: spec.SchemaProps{
			Type:        []string{"object"},
			Description: description,
			Properties:  properties,
		}}
		return openapicommon.OpenAPIDefinition{Schema: schema, Dependencies: needs}
	}
	of := func(model string) spec.Schema {
		return spec.Schema{SchemaProps: spec.SchemaProps{Default: map[string]any{}, Ref: ref(model)}}
	}
	text, number := *spec.StringProperty(), *spec.Int32Property()
	meta, listMeta := metav1.ObjectMeta{}.OpenAPIModelName(), metav1.ListMeta{}.OpenAPIModelName()
	room := of(roomModel)
	specification := object("What the room is like.", map[string]spec.Schema{
		"topic": *text.WithDescription("What people talk about."),
		"seats": *number.WithDescription("How many people may be in the room at a time. Default: 10."),
	}).Schema
	all[roomModel] = object("Room is where people talk.", map[string]spec.Schema{
		"apiVersion": text, "kind": text, "metadata": of(meta), "spec": specification,
	}, meta)
	all[roomListModel] = object("RoomList is a list of rooms.", map[string]spec.Schema{
		"apiVersion": text, "kind": text, "metadata": of(listMeta), "items": *spec.ArrayProperty(&room),
	}, listMeta, roomModel)
	return all
}
