package podspec

import (
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/core/internal/rules"
	"github.com/kinproc/kinproc/chain/core/internal/rules/claims"
	"github.com/kinproc/kinproc/chain/core/internal/rules/volumesources"
	"github.com/kinproc/kinproc/chain/core/internal/rules/workloads"
)

const (
	maxFileMode = 0o777
	// maxISCSIInterface is the maximum length of the interface name that iscsiadm derives from a
	// volume.
	maxISCSIInterface = 64
)

// validateVolumes validates the volumes and records the valid ones for the mounts.
func (v *validator) validateVolumes(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	v.volumes = map[string]corev1.VolumeSource{}
	made := sets.Set[string]{} // names of the claims of ephemeral volumes
	for _, volume := range v.spec.Volumes {
		if volume.Ephemeral != nil && v.podName() != "" {
			made.Insert(v.podName() + "-" + volume.Name)
		}
	}
	for i, volume := range v.spec.Volumes {
		at := path.Index(i)
		wrong := v.validateVolumeSource(&volume.VolumeSource, volume.Name, at)
		if volume.Name == "" {
			wrong = append(wrong, field.Required(at.Child("name"), ""))
		} else {
			wrong = append(wrong, rules.Invalid(at.Child("name"), volume.Name,
				validation.IsDNS1123Label(volume.Name))...)
		}
		if _, taken := v.volumes[volume.Name]; taken {
			wrong = append(wrong, field.Duplicate(at.Child("name"), volume.Name))
		}
		if len(wrong) == 0 {
			v.volumes[volume.Name] = volume.VolumeSource
		}
		errs = append(errs, wrong...)
		if c := volume.PersistentVolumeClaim; c != nil && made.Has(c.ClaimName) {
			errs = append(errs, field.Invalid(at.Child("persistentVolumeClaim", "claimName"), c.ClaimName,
				"must not be the claim of an ephemeral volume"))
		}
	}
	return errs
}

// volumeTypes are in the order in which kube-apiserver checks them: it validates the first type
// that is set and rejects any others.
var volumeTypes = []string{
	"emptyDir", "hostPath", "gitRepo", "gcePersistentDisk", "awsElasticBlockStore", "secret",
	"nfs", "iscsi", "glusterfs", "flocker", "persistentVolumeClaim", "rbd", "cinder", "cephfs",
	"quobyte", "downwardAPI", "fc", "flexVolume", "configMap", "azureFile", "vsphereVolume",
	"photonPersistentDisk", "portworxVolume", "azureDisk", "storageos", "projected", "scaleIO", "csi",
	"ephemeral", "image",
}

// sources holds the validation of each type that is set in a volume source. Exactly one must be
// set.
type sources map[string]func(at *field.Path) field.ErrorList

func (s sources) add(name string, set bool, validate func(at *field.Path) field.ErrorList) {
	if set {
		s[name] = validate
	}
}

func (s sources) validate(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	found := false
	for _, name := range volumeTypes {
		check, ok := s[name]
		switch {
		case !ok:
		case found:
			errs = append(errs, field.Forbidden(path.Child(surplusName(name)),
				"may not specify more than 1 volume type"))
		default:
			found = true
			errs = append(errs, check(path.Child(sourceName(name)))...)
		}
	}
	if !found {
		errs = append(errs, field.Required(path, "must specify a volume type"))
	}
	return errs
}

// surplusName returns kube-apiserver's name of a volume type in errors about too many types.
func surplusName(name string) string {
	switch name {
	case "cephfs":
		return "cephFS"
	case "downwardAPI":
		return "downwarAPI"
	}
	return name
}

// sourceName returns kube-apiserver's name of a volume type in errors about its fields.
func sourceName(name string) string {
	if name == "gcePersistentDisk" {
		return "persistentDisk"
	}
	return name
}

func (v *validator) validateVolumeSource(
	s *corev1.VolumeSource, name string, path *field.Path,
) field.ErrorList {
	all := sources{}
	all.add("emptyDir", s.EmptyDir != nil, func(at *field.Path) field.ErrorList {
		if limit := s.EmptyDir.SizeLimit; limit != nil && limit.Sign() < 0 {
			return field.ErrorList{field.Forbidden(at.Child("sizeLimit"), "must not be negative")}
		}
		return nil
	})
	all.add("hostPath", s.HostPath != nil, func(at *field.Path) field.ErrorList {
		return volumesources.ValidateHostPath(s.HostPath, at)
	})
	all.add("gitRepo", s.GitRepo != nil, func(at *field.Path) field.ErrorList {
		errs := required(at.Child("repository"), s.GitRepo.Repository)
		return append(errs, validateDescendingPath(s.GitRepo.Directory, at.Child("directory"))...)
	})
	all.add("secret", s.Secret != nil, func(at *field.Path) field.ErrorList {
		errs := required(at.Child("secretName"), s.Secret.SecretName)
		errs = append(errs, validateMode(s.Secret.DefaultMode, at.Child("defaultMode"))...)
		return append(errs, validateItems(s.Secret.Items, at.Child("items"))...)
	})
	all.add("persistentVolumeClaim", s.PersistentVolumeClaim != nil,
		func(at *field.Path) field.ErrorList {
			return required(at.Child("claimName"), s.PersistentVolumeClaim.ClaimName)
		})
	all.add("downwardAPI", s.DownwardAPI != nil, func(at *field.Path) field.ErrorList {
		errs := validateMode(s.DownwardAPI.DefaultMode, at.Child("defaultMode"))
		for _, file := range s.DownwardAPI.Items {
			// As in kube-apiserver, the paths do not contain items and the index.
			errs = append(errs, validateDownwardFile(&file, at)...)
		}
		return errs
	})
	all.add("configMap", s.ConfigMap != nil, func(at *field.Path) field.ErrorList {
		errs := required(at.Child("name"), s.ConfigMap.Name)
		errs = append(errs, validateMode(s.ConfigMap.DefaultMode, at.Child("defaultMode"))...)
		return append(errs, validateItems(s.ConfigMap.Items, at.Child("items"))...)
	})
	all.add("projected", s.Projected != nil, func(at *field.Path) field.ErrorList {
		return v.validateProjected(s.Projected, at)
	})
	all.add("csi", s.CSI != nil, func(at *field.Path) field.ErrorList {
		errs := volumesources.ValidateCSIDriverName(s.CSI.Driver, at.Child("driver"))
		if ref := s.CSI.NodePublishSecretRef; ref != nil {
			if ref.Name == "" {
				return append(errs, field.Required(at.Child("nodePublishSecretRef", "name"), ""))
			}
			// As in kube-apiserver, the path does not contain the reference.
			errs = append(errs, rules.Invalid(at.Child("name"), ref.Name,
				apivalidation.NameIsDNSSubdomain(ref.Name, false))...)
		}
		return errs
	})
	all.add("ephemeral", s.Ephemeral != nil, func(at *field.Path) field.ErrorList {
		var errs field.ErrorList
		if s.Ephemeral.VolumeClaimTemplate == nil {
			errs = append(errs, field.Required(at.Child("volumeClaimTemplate"), ""))
		} else {
			errs = append(errs, validateClaimTemplate(s.Ephemeral.VolumeClaimTemplate,
				at.Child("volumeClaimTemplate"))...)
		}
		if v.podName() != "" && name != "" {
			errs = append(errs, rules.Invalid(path.Child("name"), name,
				apivalidation.NameIsDNSSubdomain(v.podName()+"-"+name, false))...)
		}
		return errs
	})
	all.add("image", s.Image != nil, func(at *field.Path) field.ErrorList {
		var errs field.ErrorList
		if !v.opts.emptyImageVolumes {
			errs = required(at.Child("reference"), s.Image.Reference)
		}
		return append(errs, validatePullPolicy(s.Image.PullPolicy, at.Child("pullPolicy"))...)
	})
	addDevices(all, s)
	errs := all.validate(path)
	if s.ISCSI != nil && s.ISCSI.InitiatorName != nil &&
		len(name+":"+s.ISCSI.TargetPortal) > maxISCSIInterface {
		errs = append(errs, field.Invalid(path.Child("name"), name,
			"must be no more than 64 characters together with the target portal"))
	}
	return errs
}

func required(path *field.Path, value string) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return nil
}

func validateMode(mode *int32, path *field.Path) field.ErrorList {
	if mode != nil && (*mode < 0 || *mode > maxFileMode) {
		return field.ErrorList{field.Invalid(path, *mode, "must be between 0 and 0777 (octal)")}
	}
	return nil
}

func validateItems(items []corev1.KeyToPath, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, item := range items {
		at := path.Index(i)
		errs = append(errs, required(at.Child("key"), item.Key)...)
		errs = append(errs, required(at.Child("path"), item.Path)...)
		errs = append(errs, validateRelativePath(item.Path, at.Child("path"))...)
		errs = append(errs, validateMode(item.Mode, at.Child("mode"))...)
	}
	return errs
}

func validateDownwardFile(file *corev1.DownwardAPIVolumeFile, path *field.Path) field.ErrorList {
	errs := required(path.Child("path"), file.Path)
	errs = append(errs, validateRelativePath(file.Path, path.Child("path"))...)
	switch {
	case file.FieldRef != nil:
		errs = append(errs, validateFieldRef(file.FieldRef, volumeFields(), path.Child("fieldRef"))...)
		if file.ResourceFieldRef != nil {
			errs = append(errs, field.Invalid(path, "resource",
				"may not specify both fieldRef and resourceFieldRef"))
		}
	case file.ResourceFieldRef != nil:
		errs = append(errs, validateResourceRef(file.ResourceFieldRef, true,
			path.Child("resourceFieldRef"))...)
	default:
		errs = append(errs, field.Required(path, "must specify either fieldRef or resourceFieldRef"))
	}
	return append(errs, validateMode(file.Mode, path.Child("mode"))...)
}

// validateClaimTemplate validates the claim template of an ephemeral volume. Only labels and
// annotations of its metadata are used.
func validateClaimTemplate(
	t *corev1.PersistentVolumeClaimTemplate, path *field.Path,
) field.ErrorList {
	errs := workloads.ValidateTemplateMetadata(&t.ObjectMeta, path.Child("metadata"))
	return append(errs, claims.ValidateSpec(&t.Spec, path.Child("spec"), claims.Options{})...)
}
