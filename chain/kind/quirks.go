package kind

import (
	"context"

	"k8s.io/apiserver/pkg/registry/rest"
)

// Quirks are oddities of kube-apiserver that clients of its built-in kinds can observe. Each one
// preserves the behavior of some old kind. None is intended for a new kind, so do not copy them.
type Quirks struct {
	// StoragePath replaces Plural in storage keys. For example, nodes are stored as minions.
	StoragePath string

	// NameOnUpdate checks metadata.generateName on update too, although nothing is generated from
	// it then.
	NameOnUpdate bool
	// AnyFinalizers accepts every finalizer without a domain. Other kinds accept only those of
	// Kubernetes itself, such as orphan.
	AnyFinalizers bool
	// LooseMetadata leaves validation of the metadata to the registry, which checks the metadata of
	// a new object only if the rest of the object is valid.
	LooseMetadata bool

	// StatusOnCreate keeps the status that the client sends with a new object.
	StatusOnCreate bool
	// StatusWithSpec reports whether clients set the status together with the rest of the object
	// too. It is asked for each request; nil means no.
	StatusWithSpec func() bool
	// StatusNameOnUpdate is NameOnUpdate for updates of the status.
	StatusNameOnUpdate bool
	// StatusAnyFinalizers is AnyFinalizers for updates of the status.
	StatusAnyFinalizers bool
	// NoStatusTable refuses to answer requests for the status with a table.
	NoStatusTable bool

	// UnconditionalVersions are versions, such as "v1beta1", whose clients are exempt from
	// RequireResourceVersion.
	UnconditionalVersions []string
	// DefaultDeletion decides what happens to dependents if the client does not specify it. The
	// default is rest.DeleteDependents.
	DefaultDeletion func(ctx context.Context) rest.GarbageCollectionPolicy
	// ReturnDeleted answers a deletion with the object instead of a Status.
	ReturnDeleted bool

	// HiddenAnnotations are omitted from the metadata in table rows. In kube-apiserver's internal
	// version, fields take their place.
	HiddenAnnotations []string
}
