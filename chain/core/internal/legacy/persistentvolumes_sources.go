package legacy

import (
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/core/internal/rules"
	"github.com/kinproc/kinproc/chain/core/internal/rules/quantities"
	"github.com/kinproc/kinproc/chain/core/internal/rules/volumesources"
)

// iscsiNames matches the three forms of the name of an iSCSI target or initiator (RFC 3720, RFC
// 3980), by prefix. The patterns are as loose as in kube-apiserver.
var iscsiNames = map[string]*regexp.Regexp{
	"iqn": regexp.MustCompile(`iqn\.\d{4}-\d{2}\.([[:alnum:]-.]+)(:[^,;*&$|\s]+)$`),
	"eui": regexp.MustCompile(`^eui.[[:alnum:]]{16}$`),
	"naa": regexp.MustCompile(`^naa.[[:alnum:]]{32}$`),
}

// annotatedSources are the volume sources that support the mount options annotation.
var annotatedSources = sets.New("gcePersistentDisk", "awsElasticBlockStore", "glusterfs", "nfs",
	"rbd", "quobyte", "iscsi", "cinder", "cephFS", "azureFile", "vsphereVolume", "azureDisk",
	"photonPersistentDisk")

// maxISCSISession limits the total length of volume name and target portal, which together name an
// iSCSI interface if initiatorName is set.
const maxISCSISession = 64

// volumeSource is one of the source fields of a volume, of which exactly one must be set.
type volumeSource struct {
	field    string
	set      bool
	validate func(at *field.Path) field.ErrorList
	// deprecated is the version that deprecated the source, for the warning, or empty.
	deprecated string
}

// path returns the name of the field as kube-apiserver spells it in errors about the content of the
// field.
func (s volumeSource) path() string {
	switch s.field {
	case "gcePersistentDisk":
		return "persistentDisk"
	case "cephFS":
		return "cephfs"
	}
	return s.field
}

func defaultPersistentVolume(v *corev1.PersistentVolume) {
	setIfEmpty(&v.Status.Phase, corev1.VolumePending)
	setIfEmpty(&v.Spec.PersistentVolumeReclaimPolicy, corev1.PersistentVolumeReclaimRetain)
	setIfNil(&v.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	DefaultInlineVolume(&v.Spec)
}

// DefaultInlineVolume sets the defaults of the spec of an inline volume. It leaves out fields that
// only apply to a PersistentVolume object.
func DefaultInlineVolume(spec *corev1.PersistentVolumeSpec) {
	quantities.RoundUp(spec.Capacity)
	if s := spec.HostPath; s != nil {
		setIfNil(&s.Type, corev1.HostPathUnset)
	}
	if s := spec.ISCSI; s != nil {
		setIfEmpty(&s.ISCSIInterface, "default")
	}
	if s := spec.RBD; s != nil {
		setIfEmpty(&s.RBDPool, "rbd")
		setIfEmpty(&s.RadosUser, "admin")
		setIfEmpty(&s.Keyring, "/etc/ceph/keyring")
	}
	if s := spec.AzureDisk; s != nil {
		setIfNil(&s.CachingMode, corev1.AzureDataDiskCachingReadWrite)
		setIfNil(&s.Kind, corev1.AzureSharedBlobDisk)
		setIfNil(&s.FSType, "ext4")
		setIfNil(&s.ReadOnly, false)
	}
	if s := spec.ScaleIO; s != nil {
		setIfEmpty(&s.StorageMode, "ThinProvisioned")
		setIfEmpty(&s.FSType, "xfs")
	}
}

func setIfEmpty[T ~string](to *T, value T) {
	if *to == "" {
		*to = value
	}
}

func setIfNil[T any](to **T, value T) {
	if *to == nil {
		*to = &value
	}
}

// volumeSources returns the sources that a persistent volume may have. If several are set, the
// first one takes precedence.
func volumeSources(spec *corev1.PersistentVolumeSpec, name string, at *field.Path) []volumeSource {
	s := &spec.PersistentVolumeSource
	type errorList = field.ErrorList
	return []volumeSource{
		{"hostPath", s.HostPath != nil, func(at *field.Path) errorList {
			return volumesources.ValidateHostPath(s.HostPath, at)
		}, ""},
		{"gcePersistentDisk", s.GCEPersistentDisk != nil, func(at *field.Path) errorList {
			return volumesources.ValidateGCEDisk(s.GCEPersistentDisk, at)
		}, ""},
		{"awsElasticBlockStore", s.AWSElasticBlockStore != nil, func(at *field.Path) errorList {
			return volumesources.ValidateAWSDisk(s.AWSElasticBlockStore, at)
		}, ""},
		{"glusterfs", s.Glusterfs != nil, func(at *field.Path) errorList {
			return validateGlusterfs(s.Glusterfs, at)
		}, "v1.25"},
		{"flocker", s.Flocker != nil, func(at *field.Path) errorList {
			return volumesources.ValidateFlocker(s.Flocker, at)
		}, ""},
		{"nfs", s.NFS != nil, func(at *field.Path) errorList {
			return volumesources.ValidateNFS(s.NFS, at)
		}, ""},
		{"rbd", s.RBD != nil, func(at *field.Path) errorList {
			return append(requireSome(s.RBD.CephMonitors, at.Child("monitors")),
				requireSome(s.RBD.RBDImage, at.Child("image"))...)
		}, "v1.28"},
		{"quobyte", s.Quobyte != nil, func(at *field.Path) errorList {
			return volumesources.ValidateQuobyte(s.Quobyte, at)
		}, ""},
		{"cephFS", s.CephFS != nil, func(at *field.Path) errorList {
			return requireSome(s.CephFS.Monitors, at.Child("monitors"))
		}, "v1.28"},
		{"iscsi", s.ISCSI != nil, func(at *field.Path) errorList {
			return validateISCSI(s.ISCSI, name, at)
		}, ""},
		{"cinder", s.Cinder != nil, func(at *field.Path) errorList {
			return append(requireSome(s.Cinder.VolumeID, at.Child("volumeID")),
				validateSecretRef(s.Cinder.SecretRef, at.Child("secretRef"))...)
		}, ""},
		{"fc", s.FC != nil, func(at *field.Path) errorList {
			return volumesources.ValidateFC(s.FC, at)
		}, ""},
		{"flexVolume", s.FlexVolume != nil, func(at *field.Path) errorList {
			return volumesources.ValidateFlexOptions(s.FlexVolume.Driver, s.FlexVolume.Options, at)
		}, ""},
		{"azureFile", s.AzureFile != nil, func(at *field.Path) errorList {
			return validateAzureFile(s.AzureFile, at)
		}, ""},
		{"vsphereVolume", s.VsphereVolume != nil, func(at *field.Path) errorList {
			return volumesources.ValidateVSphere(s.VsphereVolume, at)
		}, ""},
		{"photonPersistentDisk", s.PhotonPersistentDisk != nil, func(at *field.Path) errorList {
			return volumesources.ValidatePhoton(s.PhotonPersistentDisk, at)
		}, "v1.11"},
		{"portworxVolume", s.PortworxVolume != nil, func(at *field.Path) errorList {
			return volumesources.ValidatePortworx(s.PortworxVolume, at)
		}, ""},
		{"azureDisk", s.AzureDisk != nil, func(at *field.Path) errorList {
			return volumesources.ValidateAzureDisk(s.AzureDisk, at)
		}, ""},
		{"scaleIO", s.ScaleIO != nil, func(at *field.Path) errorList {
			return validateScaleIO(s.ScaleIO, at)
		}, "v1.16"},
		{"local", s.Local != nil, func(*field.Path) errorList { return validateLocal(spec, at) }, ""},
		{"storageos", s.StorageOS != nil, func(at *field.Path) errorList {
			return validateStorageOS(s.StorageOS, at)
		}, "v1.22"},
		{"csi", s.CSI != nil, func(at *field.Path) errorList { return validateCSIVolume(s.CSI, at) }, ""},
	}
}

func validatePersistentVolumeSource(
	spec *corev1.PersistentVolumeSpec, name string, at *field.Path,
) field.ErrorList {
	var errs field.ErrorList
	found := false
	for _, s := range volumeSources(spec, name, at) {
		switch {
		case !s.set:
		case found && s.field != "flexVolume": // kube-apiserver accepts flexVolume beside another source
			errs = append(errs, field.Forbidden(at.Child(s.field),
				"may not specify more than 1 volume type"))
		default:
			found = true
			errs = append(errs, s.validate(at.Child(s.path()))...)
		}
	}
	if !found {
		errs = append(errs, field.Required(at, "must specify a volume source"))
	}
	return errs
}

// warnVolumeSource returns warnings about sources whose drivers Kubernetes has removed.
func warnVolumeSource(spec *corev1.PersistentVolumeSpec, at *field.Path) []string {
	var warnings []string
	for _, s := range volumeSources(spec, "", at) {
		if s.set && s.deprecated != "" {
			warnings = append(warnings,
				fmt.Sprintf("%s: deprecated since %s, and no longer supported by kubelets",
					at.Child(s.path()), s.deprecated))
		}
	}
	return warnings
}

// validateMountOptions forbids the mount options annotation for sources whose drivers never
// supported it.
func validateMountOptions(v *corev1.PersistentVolume) field.ErrorList {
	if _, ok := v.Annotations[mountOptionsAnnotation]; !ok {
		return nil
	}
	for _, s := range volumeSources(&v.Spec, "", nil) {
		if s.set && annotatedSources.Has(s.field) {
			return nil
		}
	}
	return field.ErrorList{
		field.Forbidden(field.NewPath("metadata", "annotations", mountOptionsAnnotation),
			"this volume source does not support mount options"),
	}
}

func validateLocal(spec *corev1.PersistentVolumeSpec, at *field.Path) field.ErrorList {
	path := at.Child("local", "path")
	errs := requireSome(spec.Local.Path, path)
	errs = append(errs, volumesources.ValidateNoBacksteps(spec.Local.Path, path)...)
	if spec.NodeAffinity == nil || spec.NodeAffinity.Required == nil {
		errs = append(errs, field.Required(at.Child("nodeAffinity"),
			"a local volume requires node affinity"))
	}
	return errs
}

func validateCSIVolume(s *corev1.CSIPersistentVolumeSource, at *field.Path) field.ErrorList {
	errs := volumesources.ValidateCSIDriverName(s.Driver, at.Child("driver"))
	errs = append(errs, requireSome(s.VolumeHandle, at.Child("volumeHandle"))...)
	for name, ref := range map[string]*corev1.SecretReference{
		"controllerPublishSecretRef": s.ControllerPublishSecretRef,
		"controllerExpandSecretRef":  s.ControllerExpandSecretRef,
		"nodePublishSecretRef":       s.NodePublishSecretRef,
		"nodeExpandSecretRef":        s.NodeExpandSecretRef,
	} {
		if ref == nil {
			continue
		}
		if ref.Name == "" {
			errs = append(errs, field.Required(at.Child(name, "name"), ""))
		} else {
			errs = append(errs, invalidName(at.Child(name, "name"), ref.Name)...)
		}
		if ref.Namespace == "" {
			errs = append(errs, field.Required(at.Child(name, "namespace"), ""))
		} else {
			errs = append(errs, validateLabel(ref.Namespace, at.Child(name, "namespace"))...)
		}
	}
	return errs
}

func validateGlusterfs(s *corev1.GlusterfsPersistentVolumeSource, at *field.Path) field.ErrorList {
	errs := append(requireSome(s.EndpointsName, at.Child("endpoints")),
		requireSome(s.Path, at.Child("path"))...)
	if s.EndpointsNamespace != nil {
		errs = append(errs, rules.Invalid(at.Child("endpointsNamespace"), *s.EndpointsNamespace,
			apivalidation.ValidateNamespaceName(*s.EndpointsNamespace, false))...)
	}
	return errs
}

func validateISCSI(
	s *corev1.ISCSIPersistentVolumeSource, volume string, at *field.Path,
) field.ErrorList {
	errs := requireSome(s.TargetPortal, at.Child("targetPortal"))
	if s.InitiatorName != nil && len(volume)+1+len(s.TargetPortal) > maxISCSISession {
		errs = append(errs, field.Invalid(at.Child("targetportal"), s.TargetPortal,
			fmt.Sprintf("if initiatorName is set, the volume name and targetPortal may not be longer than "+
				"%d characters together", maxISCSISession-1)))
	}
	if s.IQN == "" {
		errs = append(errs, field.Required(at.Child("iqn"), ""))
	} else {
		errs = append(errs, validateISCSIName(s.IQN, at.Child("iqn"))...)
	}
	if s.Lun < 0 || s.Lun > 255 {
		errs = append(errs, field.Invalid(at.Child("lun"), s.Lun, validation.InclusiveRangeError(0, 255)))
	}
	if s.SecretRef == nil && (s.DiscoveryCHAPAuth || s.SessionCHAPAuth) {
		errs = append(errs, field.Required(at.Child("secretRef"),
			"CHAP authentication requires a secret"))
	}
	if s.SecretRef != nil {
		errs = append(errs, requireSome(s.SecretRef.Name, at.Child("secretRef", "name"))...)
	}
	if s.InitiatorName != nil {
		errs = append(errs, validateISCSIName(*s.InitiatorName, at.Child("initiatorname"))...)
	}
	return errs
}

func validateISCSIName(name string, at *field.Path) field.ErrorList {
	for prefix, form := range iscsiNames {
		if strings.HasPrefix(name, prefix) && form.MatchString(name) {
			return nil
		}
	}
	return field.ErrorList{
		field.Invalid(at, name, "must be an iSCSI name that starts with iqn., eui. or naa."),
	}
}

func validateAzureFile(s *corev1.AzureFilePersistentVolumeSource, at *field.Path) field.ErrorList {
	errs := append(requireSome(s.SecretName, at.Child("secretName")),
		requireSome(s.ShareName, at.Child("shareName"))...)
	if s.SecretNamespace != nil {
		errs = append(errs, requireSome(*s.SecretNamespace, at.Child("secretNamespace"))...)
	}
	return errs
}

func validateScaleIO(s *corev1.ScaleIOPersistentVolumeSource, at *field.Path) field.ErrorList {
	errs := requireSome(s.Gateway, at.Child("gateway"))
	errs = append(errs, requireSome(s.System, at.Child("system"))...)
	return append(errs, requireSome(s.VolumeName, at.Child("volumeName"))...)
}

func validateStorageOS(s *corev1.StorageOSPersistentVolumeSource, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s.VolumeName == "" {
		errs = append(errs, field.Required(at.Child("volumeName"), ""))
	} else {
		errs = append(errs, validateLabel(s.VolumeName, at.Child("volumeName"))...)
	}
	if s.VolumeNamespace != "" {
		errs = append(errs, validateLabel(s.VolumeNamespace, at.Child("volumeNamespace"))...)
	}
	if ref := s.SecretRef; ref != nil {
		errs = append(errs, requireSome(ref.Name, at.Child("secretRef", "name"))...)
		errs = append(errs, requireSome(ref.Namespace, at.Child("secretRef", "namespace"))...)
	}
	return errs
}

func validateSecretRef(ref *corev1.SecretReference, at *field.Path) field.ErrorList {
	if ref == nil {
		return nil
	}
	return append(requireSome(ref.Name, at.Child("name")),
		requireSome(ref.Namespace, at.Child("namespace"))...)
}

func validateLabel(name string, at *field.Path) field.ErrorList {
	return rules.Invalid(at, name, validation.IsDNS1123Label(name))
}

// requireSome returns a Required error if value, a string or a list, is empty.
func requireSome[T ~string | ~[]string](value T, at *field.Path) field.ErrorList {
	if len(value) > 0 {
		return nil
	}
	return field.ErrorList{field.Required(at, "")}
}
