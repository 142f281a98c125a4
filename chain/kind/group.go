package kind

import (
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Group declares an API group: its versions and its kinds.
type Group struct {
	// Name is the group's name, such as "apps". It is empty for the core group.
	Name string
	// Versions are the group's versions, the preferred one first.
	Versions []GroupVersion
	// Kinds are the group's kinds, whichever versions they are served in.
	Kinds []Declaration
}

// GroupVersion is a version of a group.
type GroupVersion struct {
	// Version is the version's name, such as "v1".
	Version string
	// AddToScheme registers the version's Go types, as k8s.io/api/apps/v1.AddToScheme does.
	AddToScheme func(*runtime.Scheme) error
	// OffByDefault versions are served only if they are enabled, as with kube-apiserver's
	// --runtime-config.
	OffByDefault bool
}

// GroupVersion returns the version in the group with the given name.
func (v GroupVersion) GroupVersion(group string) schema.GroupVersion {
	return schema.GroupVersion{Group: group, Version: v.Version}
}

// Version is a version of a kind other than its hub version. Make one with [ServedAs].
type Version struct {
	example  runtime.Object
	hub      reflect.Type
	converts bool // both functions are set
	fields   map[string]string
	install  func(scheme *runtime.Scheme, hub schema.GroupVersionKind) error
}

// ServedAs declares that the kind of type H is also served as type V, of the same group or of
// another. The functions convert between the two. Their output may share memory with their input,
// which they must not change. Defaults, unless nil, fills in what V defaults on its own.
func ServedAs[V, H Object](
	toHub func(in V, out H) error, fromHub func(in H, out V) error, defaults func(V),
) Version {
	return newVersion(toHub, fromHub, defaults)
}

// WithFields returns the version with different field selectors than the hub version. Labels maps
// each selector to the hub version's selector with the same meaning.
func (v Version) WithFields(labels map[string]string) Version {
	v.fields = labels
	return v
}
