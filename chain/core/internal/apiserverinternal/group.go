package apiserverinternal

import (
	apiserverinternalv1alpha1 "k8s.io/api/apiserverinternal/v1alpha1"

	"github.com/kinproc/kinproc/chain/kind"
)

// Group returns the API group internal.apiserver.k8s.io.
func Group() kind.Group {
	return kind.Group{
		Name: apiserverinternalv1alpha1.GroupName,
		Versions: []kind.GroupVersion{
			{Version: "v1alpha1", AddToScheme: apiserverinternalv1alpha1.AddToScheme, OffByDefault: true},
		},
		Kinds: []kind.Declaration{StorageVersions()},
	}
}
