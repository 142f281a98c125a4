package etcdstore

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	serializerjson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/recognizer"
)

// JSONCodec returns the codec of objects that are stored as JSON in the first of the versions that
// has their kind. It decodes what the legacy codec of the factory decodes. That codec reads all of
// an object to find its kind, and then reads it again; up to two fifths of the time go into the
// first.
func JSONCodec(
	scheme *runtime.Scheme, codecs serializer.CodecFactory, versions ...schema.GroupVersion,
) runtime.Codec {
	stored := serializerjson.NewSerializerWithOptions(storedKind{}, scheme, scheme,
		serializerjson.SerializerOptions{})
	return runtime.NewCodec(codecs.LegacyCodec(versions...),
		codecs.DecoderToVersion(recognizer.NewDecoder(stored, codecs.UniversalDeserializer()),
			runtime.InternalGroupVersioner))
}

// storedKind finds the kind of a stored object without reading the whole object, because stored
// keys begin with kind and apiVersion.
type storedKind struct{}

// Interpret implements serializerjson.MetaFactory.
func (storedKind) Interpret(data []byte) (*schema.GroupVersionKind, error) {
	var kind, apiVersion string
	if err := members(data, func(name string, value []byte) (more bool, err error) {
		switch name {
		case "kind":
			err = json.Unmarshal(value, &kind)
		case "apiVersion":
			err = json.Unmarshal(value, &apiVersion)
		}
		return kind == "" || apiVersion == "", err
	}); err != nil || kind == "" || apiVersion == "" {
		return serializerjson.DefaultMetaFactory.Interpret(data)
	}
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return nil, err
	}
	gvk := gv.WithKind(kind)
	return &gvk, nil
}
