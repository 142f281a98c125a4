// Package kind is an engine for Kubernetes API servers. A kind is declared as a [Kind] value, in
// one place. From it the engine makes what k8s.io/apiserver requires: storage, strategies, tables,
// subresources, field selectors, discovery names, defaults and conversions. kinproc declares its
// built-in kinds in this way, and so can an extension API server.
//
// # Declare
//
// A declaration is data and a few functions on the Go type:
//
//	func ConfigMaps() *kind.Kind[*corev1.ConfigMap] {
//		return &kind.Kind[*corev1.ConfigMap]{
//			Plural:     "configmaps",
//			ShortNames: []string{"cm"},
//			Validate:   func(ctx context.Context, cm *corev1.ConfigMap) field.ErrorList { … },
//			Table:      kind.Table[*corev1.ConfigMap]{Columns: …, Row: …},
//		}
//	}
//
// Only Plural is required. The fields of [Kind] are in the order in which a reader learns them:
// names and scope, defaults and validation, the table; then what only some kinds have, such as
// [Status], [Scale] or [Subresource]; then hooks into the storage. [Quirks] holds oddities of
// kube-apiserver's old kinds: a new kind has none. A resource that stores no objects is a
// [Virtual].
//
// A [Group] lists the versions and the kinds of an API group.
//
// # Serve
//
// [NewScheme] registers the types of groups. It refuses declarations that cannot work, such as a
// table with columns and no rows, and names the group, the kind and the field. [APIGroups] returns
// what GenericAPIServer.InstallAPIGroups takes. It gets the storage of the objects from a
// generic.RESTOptionsGetter, so the storage may be etcd or something else.
//
// [NewPreparer] is for a server that writes its first objects before it serves any: it turns an
// object into what a create request would have left in the storage.
//
// # Versions
//
// The Go type of a kind is external, like the types of k8s.io/api, and it is the hub version too:
// the scheme knows it as the group's internal version, so decoding and encoding convert nothing.
// Another version of the same kind is a [Version] with a pair of conversion functions ([ServedAs]),
// or with none if its fields are the same ([ServedAsSame]).
//
// # Requests
//
// The functions of a kind run in this order: Default, when an object is decoded; then, after
// mutating admission, Refuse; PrepareCreate or PrepareUpdate; Name and Validate, or ValidateUpdate;
// Warnings; and Canonicalize. Validating admission comes last. The engine resets the status before
// PrepareCreate. It restores the old status before PrepareUpdate, and computes the generation after
// it.
//
// Package kindtest tests declarations.
package kind
