package extension

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kinproc/kinproc/chain/kind"
)

// probes declares a group whose kind has the type of config maps.
func probes() kind.Group {
	version := schema.GroupVersion{Group: "probe.example.com", Version: "v1"}
	return kind.Group{
		Name: version.Group,
		Versions: []kind.GroupVersion{{Version: version.Version, AddToScheme: func(
			scheme *runtime.Scheme,
		) error {
			scheme.AddKnownTypes(version, &corev1.ConfigMap{}, &corev1.ConfigMapList{})
			metav1.AddToGroupVersion(scheme, version)
			return nil
		}}},
		Kinds: []kind.Declaration{&kind.Kind[*corev1.ConfigMap]{Plural: "configmaps"}},
	}
}
