package storage

import (
	storagev1 "k8s.io/api/storage/v1"

	"github.com/kinproc/kinproc/chain/kind"
)

// Group returns the API group storage.k8s.io.
func Group() kind.Group {
	return kind.Group{
		Name:     storagev1.GroupName,
		Versions: []kind.GroupVersion{{Version: "v1", AddToScheme: storagev1.AddToScheme}},
		Kinds: []kind.Declaration{
			CSIDrivers(),
			CSINodes(),
			CSIStorageCapacities(),
			StorageClasses(),
			VolumeAttachments(),
			VolumeAttributesClasses(),
		},
	}
}
