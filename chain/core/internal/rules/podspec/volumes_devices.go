package podspec

import (
	"regexp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/core/internal/rules"
	"github.com/kinproc/kinproc/chain/core/internal/rules/volumesources"
)

const maxLUN = 255

// Patterns for the names of iSCSI targets and initiators (RFC 3720): iqn with a month and a
// reversed domain name, eui and naa with hexadecimal digits.
var (
	iqnName = regexp.MustCompile(`^iqn\.\d{4}-\d{2}\.([[:alnum:]-.]+)(:[^,;*&$|\s]+)$`)
	euiName = regexp.MustCompile(`^eui.[[:alnum:]]{16}$`)
	naaName = regexp.MustCompile(`^naa.[[:alnum:]]{32}$`)
)

// addDevices adds the volumes that are network or cloud disks or file systems, most of which are
// served by CSI drivers today.
func addDevices(all sources, s *corev1.VolumeSource) {
	all.add("gcePersistentDisk", s.GCEPersistentDisk != nil, func(at *field.Path) field.ErrorList {
		return volumesources.ValidateGCEDisk(s.GCEPersistentDisk, at)
	})
	all.add("awsElasticBlockStore", s.AWSElasticBlockStore != nil,
		func(at *field.Path) field.ErrorList {
			return volumesources.ValidateAWSDisk(s.AWSElasticBlockStore, at)
		})
	all.add("nfs", s.NFS != nil, func(at *field.Path) field.ErrorList {
		return volumesources.ValidateNFS(s.NFS, at)
	})
	all.add("iscsi", s.ISCSI != nil, func(at *field.Path) field.ErrorList {
		return validateISCSI(s.ISCSI, at)
	})
	all.add("glusterfs", s.Glusterfs != nil, func(at *field.Path) field.ErrorList {
		return append(required(at.Child("endpoints"), s.Glusterfs.EndpointsName),
			required(at.Child("path"), s.Glusterfs.Path)...)
	})
	all.add("flocker", s.Flocker != nil, func(at *field.Path) field.ErrorList {
		return volumesources.ValidateFlocker(s.Flocker, at)
	})
	all.add("rbd", s.RBD != nil, func(at *field.Path) field.ErrorList {
		return append(requiredList(at.Child("monitors"), s.RBD.CephMonitors),
			required(at.Child("image"), s.RBD.RBDImage)...)
	})
	all.add("cinder", s.Cinder != nil, func(at *field.Path) field.ErrorList {
		errs := required(at.Child("volumeID"), s.Cinder.VolumeID)
		if s.Cinder.SecretRef != nil {
			errs = append(errs, required(at.Child("secretRef", "name"), s.Cinder.SecretRef.Name)...)
		}
		return errs
	})
	all.add("cephfs", s.CephFS != nil, func(at *field.Path) field.ErrorList {
		return requiredList(at.Child("monitors"), s.CephFS.Monitors)
	})
	all.add("quobyte", s.Quobyte != nil, func(at *field.Path) field.ErrorList {
		return volumesources.ValidateQuobyte(s.Quobyte, at)
	})
	all.add("flexVolume", s.FlexVolume != nil, func(at *field.Path) field.ErrorList {
		return volumesources.ValidateFlexOptions(s.FlexVolume.Driver, s.FlexVolume.Options, at)
	})
	all.add("fc", s.FC != nil, func(at *field.Path) field.ErrorList {
		return volumesources.ValidateFC(s.FC, at)
	})
	all.add("azureFile", s.AzureFile != nil, func(at *field.Path) field.ErrorList {
		return append(required(at.Child("secretName"), s.AzureFile.SecretName),
			required(at.Child("shareName"), s.AzureFile.ShareName)...)
	})
	all.add("vsphereVolume", s.VsphereVolume != nil, func(at *field.Path) field.ErrorList {
		return volumesources.ValidateVSphere(s.VsphereVolume, at)
	})
	all.add("photonPersistentDisk", s.PhotonPersistentDisk != nil,
		func(at *field.Path) field.ErrorList {
			return volumesources.ValidatePhoton(s.PhotonPersistentDisk, at)
		})
	all.add("portworxVolume", s.PortworxVolume != nil, func(at *field.Path) field.ErrorList {
		return volumesources.ValidatePortworx(s.PortworxVolume, at)
	})
	all.add("azureDisk", s.AzureDisk != nil, func(at *field.Path) field.ErrorList {
		return volumesources.ValidateAzureDisk(s.AzureDisk, at)
	})
	all.add("storageos", s.StorageOS != nil, func(at *field.Path) field.ErrorList {
		errs := required(at.Child("volumeName"), s.StorageOS.VolumeName)
		if len(errs) == 0 {
			errs = rules.Invalid(at.Child("volumeName"), s.StorageOS.VolumeName,
				validation.IsDNS1123Label(s.StorageOS.VolumeName))
		}
		if s.StorageOS.VolumeNamespace != "" {
			errs = append(errs, rules.Invalid(at.Child("volumeNamespace"), s.StorageOS.VolumeNamespace,
				validation.IsDNS1123Label(s.StorageOS.VolumeNamespace))...)
		}
		if s.StorageOS.SecretRef != nil {
			errs = append(errs, required(at.Child("secretRef", "name"), s.StorageOS.SecretRef.Name)...)
		}
		return errs
	})
	all.add("scaleIO", s.ScaleIO != nil, func(at *field.Path) field.ErrorList {
		errs := required(at.Child("gateway"), s.ScaleIO.Gateway)
		errs = append(errs, required(at.Child("system"), s.ScaleIO.System)...)
		return append(errs, required(at.Child("volumeName"), s.ScaleIO.VolumeName)...)
	})
}

func requiredList(path *field.Path, values []string) field.ErrorList {
	if len(values) == 0 {
		return field.ErrorList{field.Required(path, "")}
	}
	return nil
}

func validateISCSI(s *corev1.ISCSIVolumeSource, path *field.Path) field.ErrorList {
	errs := required(path.Child("targetPortal"), s.TargetPortal)
	if s.IQN == "" {
		errs = append(errs, field.Required(path.Child("iqn"), ""))
	} else if !isISCSIName(s.IQN) {
		errs = append(errs, field.Invalid(path.Child("iqn"), s.IQN, "must be a valid iSCSI name"))
	}
	errs = append(errs, inRange(path.Child("lun"), s.Lun, 0, maxLUN)...)
	if (s.DiscoveryCHAPAuth || s.SessionCHAPAuth) && s.SecretRef == nil {
		errs = append(errs, field.Required(path.Child("secretRef"),
			"must be set when CHAP authentication is used"))
	}
	if s.InitiatorName != nil && !isISCSIName(*s.InitiatorName) {
		errs = append(errs, field.Invalid(path.Child("initiatorname"), *s.InitiatorName,
			"must be a valid iSCSI name"))
	}
	return errs
}

func isISCSIName(name string) bool {
	return iqnName.MatchString(name) || euiName.MatchString(name) || naaName.MatchString(name)
}
