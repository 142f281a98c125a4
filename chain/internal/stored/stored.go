// Package stored reads what objects of every kind have in common, as they are stored or sent: in
// JSON, or in protobuf.
package stored

import (
	"bytes"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
)

// protobuf is what objects in protobuf begin with.
var protobuf = []byte("k8s\x00")

// IsProtobuf reports whether an object is in protobuf.
func IsProtobuf(data []byte) bool { return bytes.HasPrefix(data, protobuf) }

// Metadata reads the kind and the metadata of an object.
func Metadata(data []byte, into *metav1.PartialObjectMetadata) error {
	envelope, ok := bytes.CutPrefix(data, protobuf)
	if !ok {
		return json.Unmarshal(data, into)
	}
	var object runtime.Unknown
	if err := object.Unmarshal(envelope); err != nil {
		return err
	}
	into.APIVersion, into.Kind = object.APIVersion, object.Kind
	return into.Unmarshal(object.Raw) // the metadata is the first field of every kind
}
