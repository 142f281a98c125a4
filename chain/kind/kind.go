package kind

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Object is a pointer to an API type, such as *corev1.ConfigMap.
type Object interface {
	runtime.Object
	metav1.Object
}

// Declaration is an entry of a [Group]: a *[Kind] of some type, or a *[Virtual].
type Declaration interface {
	declaration
}

// Kind declares one kind: everything that the API server knows about it. T is the type of the hub
// version, which is also the storage version. The names of the group, version and kind are the ones
// under which the group's scheme knows T.
//
// Only Plural is required. The fields are in the order in which they are best read: what every kind
// has, what some kinds have, hooks into the storage, and quirks.
type Kind[T Object] struct {
	// Plural is the resource name in URLs, such as "configmaps".
	Plural string
	// Singular defaults to the kind in lower case.
	Singular string
	// ShortNames are the abbreviations that kubectl accepts, such as "cm".
	ShortNames []string
	// Categories are the sets of resources that kubectl lists together, such as "all".
	Categories []string
	// ClusterScoped kinds are not namespaced.
	ClusterScoped bool
	// Enabled reports whether the kind is served at all, for example because a feature gate is on.
	// It is asked once for each server. Nil means that it is.
	Enabled func() bool
	// Versions are further versions, of this group or of another, in which the same objects are
	// served. Make one with [ServedAs] or [ServedAsSame].
	Versions []Version

	// Name checks metadata.name or, if prefix is true, metadata.generateName. It returns what is
	// wrong. If it is nil, names must be DNS-1123 subdomains.
	Name func(name string, prefix bool) []string
	// Default fills in what the client left out. It runs on every decoded object, whether the
	// object comes from a client or from the storage, and must be idempotent.
	Default func(obj T)
	// PrepareCreate runs before validation, after the engine has reset the status and set the
	// generation.
	PrepareCreate func(ctx context.Context, obj T)
	// PrepareUpdate runs before validation, after the engine has restored the old status and before
	// it computes the generation.
	PrepareUpdate func(ctx context.Context, obj, old T)
	// Canonicalize runs after validation, on create and update.
	Canonicalize func(obj T)
	// Validate checks a new object. The engine checks the metadata itself.
	Validate func(ctx context.Context, obj T) field.ErrorList
	// ValidateUpdate checks a changed object, except for the metadata. It replaces Validate on
	// update; if it is nil, Validate checks the changed object as if it were new.
	ValidateUpdate func(ctx context.Context, obj, old T) field.ErrorList
	// Table is what kubectl get prints: Name and Created At unless it has columns.
	Table Table[T]

	// Warnings are sent to the client with a successful create (old is nil) or update.
	Warnings func(ctx context.Context, obj, old T) []string
	// Status is the status subresource. A kind that has one ignores the field Status in writes to
	// the main resource.
	Status *Status[T]
	// Scale is the scale subresource.
	Scale *Scale[T]
	// Subresources are all other subresources.
	Subresources []Subresource[T]
	// ResetFields are the fields, such as "status", that clients cannot set through the main
	// resource. Server-side apply asks for them. The default is "status" for a kind that has a
	// status subresource.
	ResetFields []string
	// Generation makes metadata.generation count the changes of the field Spec.
	Generation bool
	// SameGeneration replaces the comparison of Spec: it reports whether obj means the same as old,
	// so that the generation stays. Setting it implies Generation.
	SameGeneration func(obj, old T) bool
	// Fields are the field selectors besides metadata.name and metadata.namespace.
	Fields map[string]func(obj T) string
	// IndexedField is the one of Fields by which the watch cache is indexed, such as spec.nodeName.
	IndexedField string
	// CreateOnUpdate lets PUT create an object that does not exist.
	CreateOnUpdate bool
	// RequireResourceVersion refuses updates without a metadata.resourceVersion.
	RequireResourceVersion bool
	// GracePeriod makes deletion graceful: it reports whether deletion waits at all, and may fill
	// in options.GracePeriodSeconds. See rest.RESTGracefulDeleteStrategy.
	GracePeriod func(ctx context.Context, obj T, options *metav1.DeleteOptions) bool
	// Refuse checks an object before the engine prepares and validates it, also in updates through
	// subresources. The client gets its error unchanged; see [Malformed].
	Refuse func(ctx context.Context, obj T) error

	// Adjust changes the store of a kind with special behavior: TTLFunc, BeginCreate, AfterDelete
	// and so on. It runs before the store is completed.
	Adjust func(store *genericregistry.Store)
	// Wrap replaces the storage of the main resource, to refuse or extend requests. What it returns
	// usually embeds *Storage.
	Wrap func(storage *Storage) rest.Storage

	// Quirks are oddities of kube-apiserver. A new kind has none.
	Quirks Quirks
}

// Status declares a status subresource. A write to it changes the field Status, labels, annotations
// and finalizers; the engine takes everything else from the stored object.
type Status[T Object] struct {
	// Prepare runs after the engine has restored what is not the status.
	Prepare func(ctx context.Context, obj, old T)
	// Validate checks the new status.
	Validate func(ctx context.Context, obj, old T) field.ErrorList
	// Warnings are sent to the client with a successful update.
	Warnings func(ctx context.Context, obj, old T) []string
	// ResetFields are the fields that clients cannot set through the status. The default is "spec".
	ResetFields []string
}

// Scale declares a scale subresource, served as an autoscaling/v1 Scale. All fields are required.
type Scale[T Object] struct {
	// Replicas and SetReplicas read and write the number of replicas wanted.
	Replicas    func(obj T) int32
	SetReplicas func(obj T, replicas int32)
	// StatusReplicas is the number of replicas observed.
	StatusReplicas func(obj T) int32
	// Selector is the label selector of the replicas, as a string.
	Selector func(obj T) (string, error)
}

// Subresource declares a subresource. Either New makes its storage, or the subresource is a view of
// the whole object: GET reads the object, PUT and PATCH change it by the rules of Prepare and
// Validate.
type Subresource[T Object] struct {
	// Name is the part of the path after the object's name, such as "approval".
	Name string

	// New makes the storage of a subresource with special behavior. Store is the kind's store.
	New func(store *genericregistry.Store) rest.Storage

	// Prepare restores from old everything that the subresource may not change. A view needs it.
	Prepare func(ctx context.Context, obj, old T)
	// Validate checks the change.
	Validate func(ctx context.Context, obj, old T) field.ErrorList
	// Warnings are sent to the client with a successful update.
	Warnings func(ctx context.Context, obj, old T) []string
	// ResetFields are the fields that clients cannot set through the subresource.
	ResetFields []string
	// UpdateOnly views have no GET and no PATCH, like namespaces/finalize.
	UpdateOnly bool
}

// Table declares what kubectl get prints.
type Table[T Object] struct {
	Columns []Column
	// Row returns a cell for each column: a string, an integer, a bool or nil.
	Row func(obj T) []any
	// Conditions returns the conditions of the row, such as Completed. Few kinds have any.
	Conditions func(obj T) []metav1.TableRowCondition
}

// Column is a column of a [Table]. Type defaults to "string". Only kubectl get -o wide prints
// columns of a priority above 0.
type Column = metav1.TableColumnDefinition

// Virtual declares a resource that stores no objects, such as tokenreviews. [Act] is a storage for
// it.
type Virtual struct {
	// Plural is the resource name in URLs, such as "tokenreviews".
	Plural string
	// New makes the storage. Its method New decides the kind, rest.Scoper the scope, and
	// rest.SingularNameProvider the singular name.
	New func() rest.Storage
}
