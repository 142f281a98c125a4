package server

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	clientscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/kinproc/kinproc/server/internal/controllers/kubernetesservice"
	"github.com/kinproc/kinproc/server/internal/controllers/rootca"
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
	codec := protobuf.NewSerializer(clientscheme.Scheme, clientscheme.Scheme)
	var m corev1.ConfigMap
	if _, _, err := codec.Decode(value, nil, &m); err != nil {
		return value // it is not as this server stores it
	}
	bundle := map[string]string{rootca.Key: string(p.access.caBundle())}
	if maps.Equal(m.Data, bundle) {
		return value
	}
	m.Data = bundle
	changed, err := runtime.Encode(clientscheme.Codecs.EncoderForVersion(codec,
		corev1.SchemeGroupVersion), &m)
	if err != nil {
		return value
	}
	return changed
}
