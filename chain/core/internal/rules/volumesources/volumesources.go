package volumesources

import (
	"net"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/core/internal/rules"
)

// maxCSIDriverName is the maximum length of a CSI driver name, which becomes part of label values.
const maxCSIDriverName = 63

var hostPathTypes = sets.New(corev1.HostPathUnset, corev1.HostPathDirectoryOrCreate,
	corev1.HostPathDirectory, corev1.HostPathFileOrCreate, corev1.HostPathFile, corev1.HostPathSocket,
	corev1.HostPathCharDev, corev1.HostPathBlockDev)

var azureCachingModes = sets.New(corev1.AzureDataDiskCachingNone,
	corev1.AzureDataDiskCachingReadOnly, corev1.AzureDataDiskCachingReadWrite)

var azureDiskKinds = sets.New(corev1.AzureSharedBlobDisk, corev1.AzureDedicatedBlobDisk,
	corev1.AzureManagedDisk)

// ValidateHostPath checks a hostPath volume of a pod or a persistent volume.
func ValidateHostPath(s *corev1.HostPathVolumeSource, at *field.Path) field.ErrorList {
	if s.Path == "" {
		return field.ErrorList{field.Required(at.Child("path"), "must specify a path on the node")}
	}
	errs := ValidateNoBacksteps(s.Path, at.Child("path"))
	if s.Type != nil && !hostPathTypes.Has(*s.Type) {
		errs = append(errs, field.NotSupported(at.Child("type"), *s.Type, sets.List(hostPathTypes)))
	}
	return errs
}

// ValidateNoBacksteps rejects paths with a ".." element.
func ValidateNoBacksteps(p string, at *field.Path) field.ErrorList {
	for part := range strings.SplitSeq(p, "/") {
		if part == ".." {
			return field.ErrorList{field.Invalid(at, p, "must not contain '..'")}
		}
	}
	return nil
}

// ValidateGCEDisk checks a gcePersistentDisk volume.
func ValidateGCEDisk(s *corev1.GCEPersistentDiskVolumeSource, at *field.Path) field.ErrorList {
	return append(requireString(s.PDName, at.Child("pdName")),
		validateByte(s.Partition, at.Child("partition"))...)
}

// ValidateAWSDisk checks an awsElasticBlockStore volume.
func ValidateAWSDisk(s *corev1.AWSElasticBlockStoreVolumeSource, at *field.Path) field.ErrorList {
	return append(requireString(s.VolumeID, at.Child("volumeID")),
		validateByte(s.Partition, at.Child("partition"))...)
}

// ValidateNFS checks an nfs volume.
func ValidateNFS(s *corev1.NFSVolumeSource, at *field.Path) field.ErrorList {
	errs := requireString(s.Server, at.Child("server"))
	errs = append(errs, requireString(s.Path, at.Child("path"))...)
	if !path.IsAbs(s.Path) {
		errs = append(errs, field.Invalid(at.Child("path"), s.Path, "must be absolute"))
	}
	return errs
}

// ValidateFC checks a Fibre Channel volume.
func ValidateFC(s *corev1.FCVolumeSource, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch {
	case len(s.TargetWWNs) == 0 && len(s.WWIDs) == 0:
		errs = append(errs, field.Required(at.Child("targetWWNs"),
			"must specify either targetWWNs or wwids"))
	case len(s.TargetWWNs) > 0 && len(s.WWIDs) > 0:
		errs = append(errs, field.Invalid(at.Child("targetWWNs"), s.TargetWWNs,
			"targetWWNs and wwids are mutually exclusive"))
	}
	if len(s.TargetWWNs) > 0 {
		if s.Lun == nil {
			errs = append(errs, field.Required(at.Child("lun"), "must be set when targetWWNs is set"))
		} else {
			errs = append(errs, validateByte(*s.Lun, at.Child("lun"))...)
		}
	}
	return errs
}

// ValidateQuobyte checks a quobyte volume.
func ValidateQuobyte(s *corev1.QuobyteVolumeSource, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch {
	case s.Registry == "":
		errs = append(errs, field.Required(at.Child("registry"),
			"must be host:port pairs, separated by commas"))
	case len(s.Tenant) > 64:
		errs = append(errs, field.Required(at.Child("tenant"), "must be a UUID of at most 64 characters"))
	default:
		for pair := range strings.SplitSeq(s.Registry, ",") {
			if _, _, err := net.SplitHostPort(pair); err != nil {
				errs = append(errs, field.Invalid(at.Child("registry"), s.Registry,
					"must be host:port pairs, separated by commas"))
			}
		}
	}
	return append(errs, requireString(s.Volume, at.Child("volume"))...)
}

// ValidateFlocker checks a flocker volume.
func ValidateFlocker(s *corev1.FlockerVolumeSource, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch {
	case s.DatasetName == "" && s.DatasetUUID == "":
		errs = append(errs, field.Required(at, "must specify either datasetName or datasetUUID"))
	case s.DatasetName != "" && s.DatasetUUID != "":
		errs = append(errs, field.Invalid(at, "resource",
			"datasetName and datasetUUID are mutually exclusive"))
	}
	if strings.Contains(s.DatasetName, "/") {
		errs = append(errs, field.Invalid(at.Child("datasetName"), s.DatasetName, "must not contain '/'"))
	}
	return errs
}

// ValidateAzureDisk checks an azureDisk volume.
func ValidateAzureDisk(s *corev1.AzureDiskVolumeSource, at *field.Path) field.ErrorList {
	errs := requireString(s.DiskName, at.Child("diskName"))
	errs = append(errs, requireString(s.DataDiskURI, at.Child("diskURI"))...)
	if s.CachingMode != nil && !azureCachingModes.Has(*s.CachingMode) {
		errs = append(errs, field.NotSupported(at.Child("cachingMode"), *s.CachingMode,
			sets.List(azureCachingModes)))
	}
	if s.Kind == nil {
		return errs
	}
	if !azureDiskKinds.Has(*s.Kind) {
		errs = append(errs, field.NotSupported(at.Child("kind"), *s.Kind, sets.List(azureDiskKinds)))
	}
	prefix := "https://"
	if *s.Kind == corev1.AzureManagedDisk {
		prefix = "/subscriptions/"
	}
	if !strings.HasPrefix(s.DataDiskURI, prefix) {
		errs = append(errs, field.NotSupported(at.Child("diskURI"), s.DataDiskURI,
			[]string{prefix + "..."}))
	}
	return errs
}

// ValidateVSphere checks a vsphereVolume volume.
func ValidateVSphere(s *corev1.VsphereVirtualDiskVolumeSource, at *field.Path) field.ErrorList {
	return requireString(s.VolumePath, at.Child("volumePath"))
}

// ValidatePhoton checks a photonPersistentDisk volume.
func ValidatePhoton(s *corev1.PhotonPersistentDiskVolumeSource, at *field.Path) field.ErrorList {
	return requireString(s.PdID, at.Child("pdID"))
}

// ValidatePortworx checks a portworxVolume volume.
func ValidatePortworx(s *corev1.PortworxVolumeSource, at *field.Path) field.ErrorList {
	return requireString(s.VolumeID, at.Child("volumeID"))
}

// ValidateFlexOptions validates the driver and options of a flexVolume. It rejects options in the
// namespaces of Kubernetes.
func ValidateFlexOptions(driver string, options map[string]string, at *field.Path) field.ErrorList {
	errs := requireString(driver, at.Child("driver"))
	for _, key := range sets.List(sets.KeySet(options)) {
		domain, _, _ := strings.Cut(key, "/")
		domain = "." + strings.ToLower(domain)
		if strings.HasSuffix(domain, ".kubernetes.io") || strings.HasSuffix(domain, ".k8s.io") {
			errs = append(errs, field.Invalid(at.Child("options").Key(key), key,
				"the namespaces kubernetes.io and k8s.io are reserved"))
		}
	}
	return errs
}

// ValidateCSIDriverName validates the name of a CSI driver.
func ValidateCSIDriverName(name string, at *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(at, "must specify a driver name")}
	}
	var errs field.ErrorList
	if len(name) > maxCSIDriverName {
		errs = append(errs, field.TooLong(at, name, maxCSIDriverName))
	}
	return append(errs, rules.Invalid(at, name,
		validation.IsDNS1123Subdomain(strings.ToLower(name)))...)
}

func requireString(s string, at *field.Path) field.ErrorList {
	if s != "" {
		return nil
	}
	return field.ErrorList{field.Required(at, "")}
}

func validateByte(n int32, at *field.Path) field.ErrorList {
	if n >= 0 && n <= 255 {
		return nil
	}
	return field.ErrorList{field.Invalid(at, n, validation.InclusiveRangeError(0, 255))}
}
