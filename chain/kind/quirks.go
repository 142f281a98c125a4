package kind

import (
	"context"

	"k8s.io/apiserver/pkg/registry/rest"
)

// Quirks are oddities of kube-apiserver that clients of its built-in kinds can observe. Each keeps
// some old kind as it is there. None is meant for a new kind, so do not copy them from one.
type Quirks struct {
	// StoragePath is where the objects are kept below the prefix of the storage, instead of Plural:
	// nodes are kept as minions.
	StoragePath string

	// NameOnUpdate checks metadata.generateName on update too. Nothing is generated from it then.
	NameOnUpdate bool
	// AnyFinalizers accepts every finalizer without a domain. Other kinds accept only Kubernetes'
	// own, such as orphan.
	AnyFinalizers bool
	// LooseMetadata leaves the metadata to the registry, which checks that of a new object only if
	// the rest of the object is valid.
	LooseMetadata bool

	// StatusOnCreate keeps the status that a new object comes with.
	StatusOnCreate bool
	// StatusNameOnUpdate is NameOnUpdate for updates of the status.
	StatusNameOnUpdate bool
	// StatusAnyFinalizers is AnyFinalizers for updates of the status.
	StatusAnyFinalizers bool
	// NoStatusTable refuses to answer requests for the status with a table.
	NoStatusTable bool

	// UnconditionalVersions are the versions, such as "v1beta1", to whose clients
	// RequireResourceVersion does not apply.
	UnconditionalVersions []string
	// DefaultDeletion decides what happens to dependants if the client does not say. Nil stands for
	// rest.DeleteDependents.
	DefaultDeletion func(ctx context.Context) rest.GarbageCollectionPolicy
	// ReturnDeleted answers a deletion with the object instead of a Status.
	ReturnDeleted bool

	// HiddenAnnotations are left out of the metadata in the rows of tables. kube-apiserver's
	// internal version has fields in their place.
	HiddenAnnotations []string
}
