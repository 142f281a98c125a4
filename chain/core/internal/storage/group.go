package storage

import (
	storagev1 "k8s.io/api/storage/v1"
	storagev1beta1 "k8s.io/api/storage/v1beta1"

	"github.com/kinproc/kinproc/chain/kind"
)

// Group returns the API group storage.k8s.io.
func Group() kind.Group {
	return kind.Group{
		Name: storagev1.GroupName,
		Versions: []kind.GroupVersion{
			{Version: "v1", AddToScheme: storagev1.AddToScheme},
			{Version: "v1beta1", AddToScheme: storagev1beta1.AddToScheme, OffByDefault: true},
		},
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
