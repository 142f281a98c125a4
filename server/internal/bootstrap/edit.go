package bootstrap

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
)

// Edit returns a stored object after a change.
type Edit func(value []byte) []byte

// withData replaces the data of a config map.
func withData(data map[string]string) Edit {
	return edit(func(m *corev1.ConfigMap) bool {
		equal := maps.Equal(m.Data, data)
		m.Data = data
		return !equal
	})
}

// edit changes an object of a built-in kind. The object stays as it is if change returns false, or
// if it is not stored as this server stores it.
func edit[O any, P interface {
	*O
	runtime.Object
}](change func(P) bool) Edit {
	codec := protobuf.NewSerializer(clientscheme.Scheme, clientscheme.Scheme)
	return func(value []byte) []byte {
		o := P(new(O))
		_, kind, err := codec.Decode(value, nil, o)
		if err != nil || !change(o) {
			return value
		}
		changed, err := runtime.Encode(clientscheme.Codecs.EncoderForVersion(codec,
			kind.GroupVersion()), o)
		if err != nil {
			return value
		}
		return changed
	}
}
