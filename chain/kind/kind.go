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

// Declaration is a [Kind] of some type or a [Virtual] one: what a [Group] lists.
type Declaration interface {
	declaration
}

// Kind declares one kind: all that the API server knows about it. T is the type of the hub version, which is also the storage version;
// the group, version and kind names are those under which the group's scheme knows T. Only Plural is required.
type Kind[T Object] struct {
	// Plural is the resource name in URLs, such as "configmaps".
	Plural string
	// Singular defaults to the kind in lower case.
	Singular string
	// ShortNames are what kubectl takes for the plural, such as "cm".
	ShortNames []string
	// Categories are the groups of resources that kubectl takes, such as "all".
	Categories []string
	// ClusterScoped kinds live in no namespace.
	ClusterScoped bool
	// StoragePath is the place below the etcd prefix (/registry) where objects are kept; it defaults to Plural.
	StoragePath string
	// Versions are further versions, in this group or in another one, in which the same objects are served.
	Versions []Version

	// Default fills in what the client left out. It runs on every decoded object, from clients and from etcd alike, and must be idempotent.
	Default func(obj T)
	// PrepareCreate runs after the engine has reset the status and set the generation, before validation.
	PrepareCreate func(ctx context.Context, obj T)
	// PrepareUpdate runs after the engine has restored the old status, before validation and before the generation is worked out.
	PrepareUpdate func(ctx context.Context, obj, old T)
	// Canonicalize runs after validation, on create and update.
	Canonicalize func(obj T)

	// Name validates metadata.name; nil stands for a DNS-1123 subdomain. With prefix, name is a generateName.
	Name func(name string, prefix bool) []string
	// NameOnUpdate has Name judge the generateName of updates too, which else may become what no new object could have.
	NameOnUpdate bool
	// AnyFinalizers lets finalizers without a domain be others than Kubernetes' own, as custom resources may have them.
	AnyFinalizers bool
	// Refuse judges an object as it is sent, before all else and whatever the subresource. Its error is the answer; see [Malformed].
	Refuse func(ctx context.Context, obj T) error
	// LooseMetadata leaves the metadata to the registry, which looks at a new object's only when nothing else is wrong with it.
	LooseMetadata bool
	// Validate checks a new object but for its metadata, which the engine checks.
	Validate func(ctx context.Context, obj T) field.ErrorList
	// ValidateUpdate checks a changed object but for its metadata. It is the whole check: unset, Validate judges the new object as if it
	// was created.
	ValidateUpdate func(ctx context.Context, obj, old T) field.ErrorList
	// Warnings are sent to the client with a successful create (old is nil) or update.
	Warnings func(ctx context.Context, obj, old T) []string

	// Generation makes metadata.generation count the changes of the object. The default comparison is of the field Spec; SameGeneration
	// overrides it.
	Generation bool
	// SameGeneration reports whether obj means the same as old, so that the generation stays. Setting it implies Generation.
	SameGeneration func(obj, old T) bool

	// Fields are the field selectors beside metadata.name and metadata.namespace.
	Fields map[string]func(obj T) string
	// IndexedField is the one of Fields by which the watch cache is indexed, such as spec.nodeName.
	IndexedField string
	// Table is what kubectl get prints; without columns it is Name and Created At.
	Table Table[T]

	// Status is the status subresource. With it the main resource ignores what clients write into the field Status.
	Status *Status[T]
	// Scale is the scale subresource.
	Scale *Scale[T]
	// Subresources are the others.
	Subresources []Subresource[T]
	// ResetFields are the fields, such as "status", that the main resource does not let clients set, for server-side apply's sake.
	// It defaults to "status" when there is a status subresource.
	ResetFields []string

	// CreateOnUpdate lets PUT create an object that is not there.
	CreateOnUpdate bool
	// RequireResourceVersion refuses updates that do not say which version they change.
	RequireResourceVersion bool
	// UnconditionalVersions are those whose clients RequireResourceVersion lets off.
	UnconditionalVersions []string
	// DefaultDeletion says what becomes of dependants if the client does not say; nil stands for rest.DeleteDependents.
	DefaultDeletion func(ctx context.Context) rest.GarbageCollectionPolicy
	// GracePeriod makes deletion graceful: it may fill in options.GracePeriodSeconds (from the object, say) and reports whether
	// deletion waits at all. See rest.RESTGracefulDeleteStrategy.CheckGracefulDelete.
	GracePeriod func(ctx context.Context, obj T, options *metav1.DeleteOptions) bool
	// ReturnDeleted answers a deletion with the object and not with a Status.
	ReturnDeleted bool

	// Adjust changes the store before it is completed, where a kind really behaves: TTLFunc, BeginCreate, AfterDelete and so on.
	Adjust func(store *genericregistry.Store)
	// Wrap replaces the main resource's storage, to refuse or extend requests. What it returns usually embeds *Storage.
	Wrap func(storage *Storage) rest.Storage
}

// Status declares a status subresource: all but the field Status and what Prepare allows is taken from the stored object.
type Status[T Object] struct {
	// SetOnCreate keeps the status that a new object comes with, as nodes do.
	SetOnCreate bool
	// Prepare runs after the engine has restored the spec (labels, annotations and finalizers stay as the client sent them).
	Prepare func(ctx context.Context, obj, old T)
	// Validate checks the new status against the old one.
	Validate func(ctx context.Context, obj, old T) field.ErrorList
	// Warnings are sent to the client with a successful update.
	Warnings func(ctx context.Context, obj, old T) []string
	// ResetFields are the fields that cannot be set through status; it defaults to "spec".
	ResetFields []string
	// NameOnUpdate and AnyFinalizers are those of Kind for updates of the status.
	NameOnUpdate, AnyFinalizers bool
	// NoTable refuses to answer with a table.
	NoTable bool
}

// Scale declares a scale subresource, served as autoscaling/v1 Scale.
type Scale[T Object] struct {
	Replicas    func(obj T) int32
	SetReplicas func(obj T, replicas int32)
	// StatusReplicas is the number of replicas observed.
	StatusReplicas func(obj T) int32
	// Selector is the label selector in its string form.
	Selector func(obj T) (string, error)
}

// Subresource declares a subresource. Either New makes its storage, or it is a view of the whole object that is read with GET and
// changed with PUT and PATCH by the rules of Prepare and Validate.
type Subresource[T Object] struct {
	// Name is the part of the path after the object's name, such as "approval".
	Name string
	// New makes a subresource that behaves; store is the kind's.
	New func(store *genericregistry.Store) rest.Storage

	// Prepare restores from old all that the subresource may not change.
	Prepare func(ctx context.Context, obj, old T)
	// Validate checks the change.
	Validate func(ctx context.Context, obj, old T) field.ErrorList
	// Warnings are sent to the client with a successful update.
	Warnings func(ctx context.Context, obj, old T) []string
	// ResetFields are the fields that cannot be set through the subresource, for server-side apply's sake.
	ResetFields []string
	// UpdateOnly subresources have no GET and no PATCH, such as namespaces/finalize.
	UpdateOnly bool

	nameOnUpdate, anyFinalizers bool
	// tables are answered by the status alone.
	tables bool
}

// Table declares what kubectl get prints.
type Table[T Object] struct {
	Columns []Column
	// Row has a cell for each column: a string, an integer, a bool or nil.
	Row func(obj T) []any
	// HiddenAnnotations are left out of the metadata that the rows come with: kube-apiserver has fields for them in its internal version.
	HiddenAnnotations []string
	// Conditions are those of the row, such as Completed. Few kinds have any.
	Conditions func(obj T) []metav1.TableRowCondition
}

// Column is a column of a [Table]. Columns of a priority above 0 are printed by kubectl get -o wide only. Type defaults to "string".
type Column = metav1.TableColumnDefinition

// Virtual declares a resource that is not stored, such as tokenreviews: a request to it is an act.
type Virtual struct {
	// Plural is the resource name in URLs, such as "tokenreviews".
	Plural string
	// New makes the storage; its New method decides the kind. Scope and singular name are the storage's own to say (rest.Scoper,
	// rest.SingularNameProvider).
	New func() rest.Storage
	// Versions are further versions in which the resource is served.
	Versions []Version
}
