package etcdstore

import (
	"encoding/json"
	"errors"
	"fmt"

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

var errNotJSON = errors.New("invalid JSON")

// members calls visit for the members of a JSON object until it returns false. It finds their ends
// without a check of what is in them, because etcd holds only what the server has encoded.
func members(data []byte, visit func(name string, value []byte) (bool, error)) error {
	at := space(data, 0)
	if at >= len(data) || data[at] != '{' {
		return fmt.Errorf("%w: not an object", errNotJSON)
	}
	for at = space(data, at+1); at < len(data) && data[at] == '"'; {
		end := valueEnd(data, at)
		name := data[at+1 : max(end-1, at+1)]
		at = space(data, end)
		if at >= len(data) || data[at] != ':' {
			return errNotJSON
		}
		at = space(data, at+1)
		end = valueEnd(data, at)
		if more, err := visit(string(name), data[at:end]); !more || err != nil {
			return err
		}
		if at = space(data, end); at < len(data) && data[at] == ',' {
			at = space(data, at+1)
		}
	}
	if at >= len(data) || data[at] != '}' {
		return errNotJSON
	}
	return nil
}

// space returns where the next token begins.
func space(data []byte, at int) int {
	for at < len(data) && (data[at] == ' ' || data[at] == '\n' || data[at] == '\t' ||
		data[at] == '\r') {
		at++
	}
	return at
}

// valueEnd returns where a value ends that begins at a position.
func valueEnd(data []byte, at int) int {
	depth := 0
	for ; at < len(data); at++ {
		switch data[at] {
		case '"':
			for at++; at < len(data) && data[at] != '"'; at++ {
				if data[at] == '\\' {
					at++
				}
			}
			if depth == 0 {
				return min(at+1, len(data))
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return at + 1
			} else if depth < 0 {
				return at
			}
		case ',', ':':
			if depth == 0 {
				return at
			}
		}
	}
	return len(data)
}
