// Package kind is the engine of the core-like server: a built-in kind is declared as a [Kind] literal, in one file, and the engine makes
// of it what k8s.io/apiserver wants: REST storage, strategies, table conversion, discovery and OpenAPI.
//
//	func ConfigMaps() kind.Declaration {
//		return &kind.Kind[*corev1.ConfigMap]{
//			Plural: "configmaps", ShortNames: []string{"cm"},
//			Validate: func(ctx context.Context, cm *corev1.ConfigMap) field.ErrorList { … },
//			Table: kind.Table[*corev1.ConfigMap]{ … },
//		}
//	}
//
// The Go type is the external one of k8s.io/api, and it is also the hub version: the type is registered as the group's internal
// version too, so decoding and encoding convert nothing. Another served version of the same kind is a [Version] with a pair of
// conversion functions.
//
// The package knows nothing of kinproc's built-in kinds: an extension API server declares its kinds with it in the same way.
package kind
