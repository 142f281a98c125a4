package podspec

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/core/rules"
)

const maxFileMode = 0o777

// validateVolumes checks the volumes and remembers the good ones for the mounts.
func (v *validator) validateVolumes(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	v.volumes = map[string]corev1.VolumeSource{}
	names, claims := sets.Set[string]{}, sets.Set[string]{}
	for _, volume := range v.spec.Volumes {
		if volume.PersistentVolumeClaim != nil {
			claims.Insert(volume.PersistentVolumeClaim.ClaimName)
		}
	}
	for i, volume := range v.spec.Volumes {
		at := path.Index(i)
		wrong := v.validateVolumeSource(&volume.VolumeSource, at)
		switch {
		case volume.Name == "":
			wrong = append(wrong, field.Required(at.Child("name"), ""))
		case names.Has(volume.Name):
			wrong = append(wrong, field.Duplicate(at.Child("name"), volume.Name))
		default:
			wrong = append(wrong, messages(at.Child("name"), volume.Name, validation.IsDNS1123Label(volume.Name))...)
		}
		names.Insert(volume.Name)
		if volume.Ephemeral != nil && v.podName() != "" {
			claim := v.podName() + "-" + volume.Name
			wrong = append(wrong, messages(at.Child("name"), volume.Name, apivalidation.NameIsDNSSubdomain(claim, false))...)
			if claims.Has(claim) {
				wrong = append(wrong, field.Invalid(at.Child("name"), volume.Name, "its claim would be called as another one: "+claim))
			}
			claims.Insert(claim)
		}
		if len(wrong) == 0 {
			v.volumes[volume.Name] = volume.VolumeSource
		}
		errs = append(errs, wrong...)
	}
	return errs
}

// sources checks that there is one source of a volume, and that one.
type sources struct {
	path  *field.Path
	found bool
	errs  field.ErrorList
}

func (s *sources) add(name string, set bool, validate func(at *field.Path) field.ErrorList) {
	switch {
	case !set:
	case s.found:
		s.errs = append(s.errs, field.Forbidden(s.path.Child(name), "a volume has one type only"))
	default:
		s.found = true
		s.errs = append(s.errs, validate(s.path.Child(name))...)
	}
}

func (v *validator) validateVolumeSource(s *corev1.VolumeSource, path *field.Path) field.ErrorList {
	all := &sources{path: path}
	all.add("emptyDir", s.EmptyDir != nil, func(at *field.Path) field.ErrorList {
		if limit := s.EmptyDir.SizeLimit; limit != nil && limit.Sign() < 0 {
			return field.ErrorList{field.Forbidden(at.Child("sizeLimit"), "must not be negative")}
		}
		return nil
	})
	all.add("hostPath", s.HostPath != nil, func(at *field.Path) field.ErrorList { return rules.ValidateHostPath(s.HostPath, at) })
	all.add("gitRepo", s.GitRepo != nil, func(at *field.Path) field.ErrorList {
		errs := required(at.Child("repository"), s.GitRepo.Repository)
		return append(errs, validateDescendingPath(s.GitRepo.Directory, at.Child("directory"))...)
	})
	all.add("secret", s.Secret != nil, func(at *field.Path) field.ErrorList {
		errs := required(at.Child("secretName"), s.Secret.SecretName)
		errs = append(errs, validateMode(s.Secret.DefaultMode, at.Child("defaultMode"))...)
		return append(errs, validateItems(s.Secret.Items, at.Child("items"))...)
	})
	all.add("persistentVolumeClaim", s.PersistentVolumeClaim != nil, func(at *field.Path) field.ErrorList {
		return required(at.Child("claimName"), s.PersistentVolumeClaim.ClaimName)
	})
	all.add("downwardAPI", s.DownwardAPI != nil, func(at *field.Path) field.ErrorList {
		errs := validateMode(s.DownwardAPI.DefaultMode, at.Child("defaultMode"))
		for _, file := range s.DownwardAPI.Items {
			// kube-apiserver leaves items and the index out of the paths.
			errs = append(errs, validateDownwardFile(&file, at)...)
		}
		return errs
	})
	all.add("configMap", s.ConfigMap != nil, func(at *field.Path) field.ErrorList {
		errs := required(at.Child("name"), s.ConfigMap.Name)
		errs = append(errs, validateMode(s.ConfigMap.DefaultMode, at.Child("defaultMode"))...)
		return append(errs, validateItems(s.ConfigMap.Items, at.Child("items"))...)
	})
	all.add("projected", s.Projected != nil, func(at *field.Path) field.ErrorList { return v.validateProjected(s.Projected, at) })
	all.add("csi", s.CSI != nil, func(at *field.Path) field.ErrorList {
		errs := rules.ValidateCSIDriverName(s.CSI.Driver, at.Child("driver"))
		if ref := s.CSI.NodePublishSecretRef; ref != nil {
			name := at.Child("nodePublishSecretRef", "name")
			if ref.Name == "" {
				return append(errs, field.Required(name, ""))
			}
			errs = append(errs, messages(name, ref.Name, apivalidation.NameIsDNSSubdomain(ref.Name, false))...)
		}
		return errs
	})
	all.add("ephemeral", s.Ephemeral != nil, func(at *field.Path) field.ErrorList {
		if s.Ephemeral.VolumeClaimTemplate == nil {
			return field.ErrorList{field.Required(at.Child("volumeClaimTemplate"), "")}
		}
		return validateClaimTemplate(s.Ephemeral.VolumeClaimTemplate, at.Child("volumeClaimTemplate"))
	})
	all.add("image", s.Image != nil, func(at *field.Path) field.ErrorList {
		var errs field.ErrorList
		switch ref := s.Image.Reference; {
		case v.opts.pod && ref == "":
			errs = append(errs, field.Required(at.Child("reference"), ""))
		case v.opts.pod && strings.TrimSpace(ref) != ref:
			errs = append(errs, field.Invalid(at.Child("reference"), ref, "must not begin or end with white space"))
		}
		return append(errs, validatePullPolicy(s.Image.PullPolicy, at.Child("pullPolicy"))...)
	})
	addDevices(all, s)
	if !all.found {
		all.errs = append(all.errs, field.Required(path, "say what sort of volume it is"))
	}
	return all.errs
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
			errs = append(errs, field.Invalid(path, "resource", "a file has either fieldRef or resourceFieldRef"))
		}
	case file.ResourceFieldRef != nil:
		errs = append(errs, validateResourceRef(file.ResourceFieldRef, true, path.Child("resourceFieldRef"))...)
	default:
		errs = append(errs, field.Required(path, "a file needs fieldRef or resourceFieldRef"))
	}
	return append(errs, validateMode(file.Mode, path.Child("mode"))...)
}

// validateClaimTemplate checks the claim that an ephemeral volume makes. Of its metadata only labels and annotations are used.
func validateClaimTemplate(t *corev1.PersistentVolumeClaimTemplate, path *field.Path) field.ErrorList {
	errs := rules.ValidateTemplateMetadata(&t.ObjectMeta, path.Child("metadata"))
	return append(errs, rules.ValidateClaimSpec(&t.Spec, path.Child("spec"), rules.ClaimOptions{})...)
}
