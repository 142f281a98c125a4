package podspec

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/kinproc/kinproc/chain/core/internal/rules/claims"
	"github.com/kinproc/kinproc/chain/features"
)

// setVolumeDefaults sets the defaults of a volume. A volume without a source becomes an emptyDir.
func setVolumeDefaults(v *corev1.VolumeSource) {
	if *v == (corev1.VolumeSource{}) {
		v.EmptyDir = &corev1.EmptyDirVolumeSource{}
	}
	if v.HostPath != nil {
		orPointer(&v.HostPath.Type, corev1.HostPathUnset)
	}
	if v.Secret != nil {
		orPointer(&v.Secret.DefaultMode, corev1.SecretVolumeSourceDefaultMode)
	}
	if v.ConfigMap != nil {
		orPointer(&v.ConfigMap.DefaultMode, corev1.ConfigMapVolumeSourceDefaultMode)
	}
	if v.DownwardAPI != nil {
		orPointer(&v.DownwardAPI.DefaultMode, corev1.DownwardAPIVolumeSourceDefaultMode)
		setDownwardAPIDefaults(v.DownwardAPI.Items)
	}
	if v.Projected != nil {
		orPointer(&v.Projected.DefaultMode, corev1.ProjectedVolumeSourceDefaultMode)
		for i := range v.Projected.Sources {
			setProjectionDefaults(&v.Projected.Sources[i])
		}
	}
	if v.ISCSI != nil {
		orDefault(&v.ISCSI.ISCSIInterface, "default")
	}
	if v.RBD != nil {
		orDefault(&v.RBD.RBDPool, "rbd")
		orDefault(&v.RBD.RadosUser, "admin")
		orDefault(&v.RBD.Keyring, "/etc/ceph/keyring")
	}
	if v.AzureDisk != nil {
		orPointer(&v.AzureDisk.CachingMode, corev1.AzureDataDiskCachingReadWrite)
		orPointer(&v.AzureDisk.Kind, corev1.AzureSharedBlobDisk)
		orPointer(&v.AzureDisk.FSType, "ext4")
		orPointer(&v.AzureDisk.ReadOnly, false)
	}
	if v.ScaleIO != nil {
		orDefault(&v.ScaleIO.StorageMode, "ThinProvisioned")
		orDefault(&v.ScaleIO.FSType, "xfs")
	}
	if v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil {
		claims.DefaultSpec(&v.Ephemeral.VolumeClaimTemplate.Spec)
	}
	if v.Image != nil && features.Enabled(features.ImageVolume) {
		orDefault(&v.Image.PullPolicy, pullPolicy(v.Image.Reference))
	}
}

func setProjectionDefaults(p *corev1.VolumeProjection) {
	if p.ServiceAccountToken != nil {
		orPointer(&p.ServiceAccountToken.ExpirationSeconds, 3600)
	}
	if p.DownwardAPI != nil {
		setDownwardAPIDefaults(p.DownwardAPI.Items)
	}
}

func setDownwardAPIDefaults(items []corev1.DownwardAPIVolumeFile) {
	for i := range items {
		setFieldRefDefaults(items[i].FieldRef)
	}
}
