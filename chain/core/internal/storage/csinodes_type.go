package storage

import (
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// csiNode is a CSINode without the status of the alpha feature CSIVolumeHealth. The type in
// k8s.io/api would write an empty status into every object, unlike kube-apiserver.
type csiNode struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              storagev1.CSINodeSpec `json:"spec"`
}

// csiNodeList is a list of csiNode.
type csiNodeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []csiNode `json:"items"`
}

// addToScheme registers the group's types, with csiNode as the type of CSINode.
func addToScheme(scheme *runtime.Scheme) error {
	gv := storagev1.SchemeGroupVersion
	scheme.AddKnownTypes(gv,
		&storagev1.CSIDriver{}, &storagev1.CSIDriverList{},
		&storagev1.CSIStorageCapacity{}, &storagev1.CSIStorageCapacityList{},
		&storagev1.StorageClass{}, &storagev1.StorageClassList{},
		&storagev1.VolumeAttachment{}, &storagev1.VolumeAttachmentList{},
		&storagev1.VolumeAttributesClass{}, &storagev1.VolumeAttributesClassList{},
	)
	scheme.AddKnownTypeWithName(gv.WithKind("CSINode"), &csiNode{})
	scheme.AddKnownTypeWithName(gv.WithKind("CSINodeList"), &csiNodeList{})
	metav1.AddToGroupVersion(scheme, gv)
	return nil
}

// api returns the node as the type of k8s.io/api. Both share memory.
func (n *csiNode) api() *storagev1.CSINode {
	return &storagev1.CSINode{TypeMeta: n.TypeMeta, ObjectMeta: n.ObjectMeta, Spec: n.Spec}
}

func (n *csiNode) set(from *storagev1.CSINode) {
	n.TypeMeta, n.ObjectMeta, n.Spec = from.TypeMeta, from.ObjectMeta, from.Spec
}

// DeepCopyObject implements runtime.Object.
func (n *csiNode) DeepCopyObject() runtime.Object {
	out := &csiNode{}
	out.set(n.api().DeepCopy())
	return out
}

// OpenAPIModelName returns the name of the schema in k8s.io/api.
func (n csiNode) OpenAPIModelName() string { return storagev1.CSINode{}.OpenAPIModelName() }

// Reset and the methods below are required by the protobuf serializer.
func (n *csiNode) Reset() { *n = csiNode{} }

// Unmarshal reads protobuf.
func (n *csiNode) Unmarshal(data []byte) error {
	var from storagev1.CSINode
	err := from.Unmarshal(data)
	n.set(&from)
	return err
}

// Size returns the size of the protobuf form in bytes.
func (n *csiNode) Size() int { return n.api().Size() }

// MarshalTo writes protobuf to the start of data.
func (n *csiNode) MarshalTo(data []byte) (int, error) { return n.api().MarshalTo(data) }

// MarshalToSizedBuffer writes protobuf to the end of data.
func (n *csiNode) MarshalToSizedBuffer(data []byte) (int, error) {
	return n.api().MarshalToSizedBuffer(data)
}

// Marshal writes protobuf.
func (n *csiNode) Marshal() ([]byte, error) { return n.api().Marshal() }

func (l *csiNodeList) api() *storagev1.CSINodeList {
	list := &storagev1.CSINodeList{TypeMeta: l.TypeMeta, ListMeta: l.ListMeta}
	if l.Items != nil {
		list.Items = make([]storagev1.CSINode, len(l.Items))
	}
	for i := range l.Items {
		list.Items[i] = *l.Items[i].api()
	}
	return list
}

func (l *csiNodeList) set(from *storagev1.CSINodeList) {
	*l = csiNodeList{TypeMeta: from.TypeMeta, ListMeta: from.ListMeta}
	if from.Items != nil {
		l.Items = make([]csiNode, len(from.Items))
	}
	for i := range from.Items {
		l.Items[i].set(&from.Items[i])
	}
}

// DeepCopyObject implements runtime.Object.
func (l *csiNodeList) DeepCopyObject() runtime.Object {
	out := &csiNodeList{}
	out.set(l.api().DeepCopy())
	return out
}

// OpenAPIModelName returns the name of the schema in k8s.io/api.
func (l csiNodeList) OpenAPIModelName() string { return storagev1.CSINodeList{}.OpenAPIModelName() }

// Reset and the methods below are required by the protobuf serializer.
func (l *csiNodeList) Reset() { *l = csiNodeList{} }

// Unmarshal reads protobuf.
func (l *csiNodeList) Unmarshal(data []byte) error {
	var from storagev1.CSINodeList
	err := from.Unmarshal(data)
	l.set(&from)
	return err
}

// Size returns the size of the protobuf form in bytes.
func (l *csiNodeList) Size() int { return l.api().Size() }

// MarshalTo writes protobuf to the start of data.
func (l *csiNodeList) MarshalTo(data []byte) (int, error) { return l.api().MarshalTo(data) }

// MarshalToSizedBuffer writes protobuf to the end of data.
func (l *csiNodeList) MarshalToSizedBuffer(data []byte) (int, error) {
	return l.api().MarshalToSizedBuffer(data)
}

// Marshal writes protobuf.
func (l *csiNodeList) Marshal() ([]byte, error) { return l.api().Marshal() }
