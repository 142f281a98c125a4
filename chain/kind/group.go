package kind

import (
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Group declares an API group: its versions and, one by one, its kinds.
type Group struct {
	// Name is the group's name, such as "apps"; the core group's is empty.
	Name string
	// Versions are listed with the preferred one first.
	Versions []GroupVersion
	// Kinds are the kinds of the group, whichever versions they are served in.
	Kinds []Declaration
}

// GroupVersion is a version of a group.
type GroupVersion struct {
	// Version is the version's name, such as "v1".
	Version string
	// AddToScheme registers the version's Go types, as k8s.io/api/apps/v1.AddToScheme does.
	AddToScheme func(*runtime.Scheme) error
	// OffByDefault versions are served only if they are asked for (kube-apiserver's --runtime-config).
	OffByDefault bool
}

// GroupVersion is the version in the group with the given name.
func (v GroupVersion) GroupVersion(group string) schema.GroupVersion {
	return schema.GroupVersion{Group: group, Version: v.Version}
}

// Version is a version of a kind other than its hub version. Make one with [ServedAs].
type Version struct {
	example  runtime.Object
	hub      reflect.Type
	converts bool // both functions are there
	fields   map[string]string
	install  func(scheme *runtime.Scheme, hub schema.GroupVersionKind) error
}

// ServedAs declares that the kind of type H is served as type V too: a version of the same or of another group, between which and the hub
// the two functions convert. They may share memory with their input but must not change it. Defaults, where given, are V's own.
func ServedAs[V, H Object](toHub func(in V, out H) error, fromHub func(in H, out V) error, defaults func(V)) Version {
	return newVersion(toHub, fromHub, defaults)
}

// WithFields is the version with field selectors of its own: labels by the label that the hub version has for the same. Without them it
// has the hub version's.
func (v Version) WithFields(labels map[string]string) Version {
	v.fields = labels
	return v
}
