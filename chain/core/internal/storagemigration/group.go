package storagemigration

import (
	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	storagemigrationv1beta1 "k8s.io/api/storagemigration/v1beta1"

	"github.com/kinproc/kinproc/chain/kind"
)

// Group returns the API group storagemigration.k8s.io.
func Group() kind.Group {
	return kind.Group{
		Name: storagemigrationv1.GroupName,
		Versions: []kind.GroupVersion{
			{Version: "v1", AddToScheme: storagemigrationv1.AddToScheme},
			{Version: "v1beta1", AddToScheme: storagemigrationv1beta1.AddToScheme, OffByDefault: true},
		},
		Kinds: []kind.Declaration{StorageVersionMigrations()},
	}
}
