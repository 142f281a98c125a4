package server

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	clientscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/kinproc/kinproc/server/internal/controllers/cluster/rootca"
	"github.com/kinproc/kinproc/server/internal/controllers/kubernetesservice"
)

// Some objects describe the control plane itself: its addresses, its authority, its lease. A reset
// keeps those of this control plane.

const authenticationConfig = "configmaps/kube-system/extension-apiserver-authentication"

// isOwn reports whether an object, given by its key below the prefix, belongs to the process that
// wrote it, so that a snapshot of it means nothing here.
func isOwn(object string) bool {
	return strings.HasPrefix(object, "leases/kube-system/apiserver-") ||
		strings.HasPrefix(object, "masterleases/")
}

// stays reports whether a reset leaves an existing object as it is.
func stays(object string) bool {
	return isOwn(object) || object == authenticationConfig ||
		slices.Contains(kubernetesservice.Keys(), object)
}

// ensured reports whether the control plane always has an object, so that a reset does not delete
// it: the APIServices of built-in versions, the address of the service default/kubernetes, the
// namespaces of the system, and the certificates in each namespace.
func (r *reset) ensured(object string) bool {
	p := r.plane
	kind, name, _ := strings.Cut(object, "/")
	switch kind {
	case "namespaces":
		return slices.Contains(systemNamespaces(), name)
	case "configmaps":
		namespace, name, _ := strings.Cut(name, "/")
		_, exists := r.target.Entries[p.storage.Prefix()+"/namespaces/"+namespace]
		return name == rootca.ConfigMap && exists
	case "ipaddresses":
		return name == p.services.allocator.FirstIP().String()
	case "apiregistration.k8s.io":
		name = strings.TrimPrefix(name, "apiservices/")
		for _, gv := range p.chain.LocalGroupVersions() {
			if name == gv.Version+"."+gv.Group {
				return true
			}
		}
	}
	return false
}

// adapted returns what a reset stores instead of an object of the snapshot: the config maps
// kube-root-ca.crt get the certificates of this control plane.
func (p *plane) adapted(object string, value []byte) []byte {
	if !strings.HasPrefix(object, "configmaps/") || !strings.HasSuffix(object, "/"+rootca.ConfigMap) {
		return value
	}
	return withData(map[string]string{rootca.Key: string(p.access.caBundle())})(value)
}

// editFunc returns a stored object after a change.
type editFunc func(value []byte) []byte

// withData replaces the data of a config map.
func withData(data map[string]string) editFunc {
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
}](change func(P) bool) editFunc {
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
