package podspec

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/core/internal/rules/volumesources"
)

func (v *validator) validateMounts(c *corev1.Container, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	devices, devicePaths := sets.Set[string]{}, sets.Set[string]{}
	for _, d := range c.VolumeDevices {
		devices.Insert(d.Name)
		devicePaths.Insert(d.DevicePath)
	}
	paths := sets.Set[string]{}
	for i, m := range c.VolumeMounts {
		at := path.Index(i)
		if m.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
		}
		if _, ok := v.volumes[m.Name]; !ok {
			errs = append(errs, field.NotFound(at.Child("name"), m.Name))
		}
		if m.MountPath == "" {
			errs = append(errs, field.Required(at.Child("mountPath"), ""))
		}
		if paths.Has(m.MountPath) {
			errs = append(errs, field.Invalid(at.Child("mountPath"), m.MountPath, "must be unique"))
		}
		paths.Insert(m.MountPath)
		if devices.Has(m.Name) {
			errs = append(errs, field.Invalid(at.Child("name"), m.Name, "is already used in volumeDevices"))
		}
		if devicePaths.Has(m.MountPath) {
			errs = append(errs, field.Invalid(at.Child("mountPath"), m.MountPath,
				"is already used as a devicePath in volumeDevices"))
		}
		// As in kube-apiserver, the paths of the following four checks have no index.
		if m.SubPath != "" {
			errs = append(errs, validateDescendingPath(m.SubPath, path.Child("subPath"))...)
		}
		if m.SubPathExpr != "" {
			if m.SubPath != "" {
				errs = append(errs, field.Invalid(at.Child("subPathExpr"), m.SubPathExpr,
					"may not be set together with subPath"))
			}
			errs = append(errs, validateDescendingPath(m.SubPathExpr, path.Child("subPathExpr"))...)
		}
		errs = append(errs, validatePropagation(m.MountPropagation, c, path.Child("mountPropagation"))...)
		errs = append(errs, validateRecursiveReadOnly(&m, path.Child("recursiveReadOnly"))...)
	}
	return errs
}

func validatePropagation(
	mode *corev1.MountPropagationMode, c *corev1.Container, path *field.Path,
) field.ErrorList {
	if mode == nil {
		return nil
	}
	modes := []corev1.MountPropagationMode{
		corev1.MountPropagationBidirectional, corev1.MountPropagationHostToContainer,
		corev1.MountPropagationNone,
	}
	if !sets.New(modes...).Has(*mode) {
		return field.ErrorList{field.NotSupported(path, *mode, modes)}
	}
	privileged := c.SecurityContext != nil && c.SecurityContext.Privileged != nil &&
		*c.SecurityContext.Privileged
	if *mode == corev1.MountPropagationBidirectional && !privileged {
		return field.ErrorList{
			field.Forbidden(path, "Bidirectional may only be used by privileged containers"),
		}
	}
	return nil
}

func validateRecursiveReadOnly(m *corev1.VolumeMount, path *field.Path) field.ErrorList {
	if m.RecursiveReadOnly == nil {
		return nil
	}
	var errs field.ErrorList
	switch *m.RecursiveReadOnly {
	case corev1.RecursiveReadOnlyDisabled:
	case corev1.RecursiveReadOnlyEnabled, corev1.RecursiveReadOnlyIfPossible:
		if !m.ReadOnly {
			errs = append(errs, field.Forbidden(path, "may only be set when readOnly is true"))
		}
		if m.MountPropagation != nil && *m.MountPropagation != corev1.MountPropagationNone {
			errs = append(errs, field.Forbidden(path,
				"may only be set when mountPropagation is None or unset"))
		}
	default:
		errs = append(errs, field.NotSupported(path, *m.RecursiveReadOnly,
			[]corev1.RecursiveReadOnlyMode{
				corev1.RecursiveReadOnlyDisabled, corev1.RecursiveReadOnlyIfPossible,
				corev1.RecursiveReadOnlyEnabled,
			}))
	}
	return errs
}

func (v *validator) validateDevices(c *corev1.Container, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	mounts, mountPaths := sets.Set[string]{}, sets.Set[string]{}
	for _, m := range c.VolumeMounts {
		mounts.Insert(m.Name)
		mountPaths.Insert(m.MountPath)
	}
	names, paths := sets.Set[string]{}, sets.Set[string]{}
	for i, d := range c.VolumeDevices {
		at := path.Index(i)
		volume, found := v.volumes[d.Name]
		if d.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
		}
		if names.Has(d.Name) {
			errs = append(errs, field.Invalid(at.Child("name"), d.Name, "must be unique"))
		}
		if d.Name != "" {
			names.Insert(d.Name)
		}
		switch {
		case !found:
			errs = append(errs, field.NotFound(at.Child("name"), d.Name))
		case volume.PersistentVolumeClaim == nil && volume.Ephemeral == nil:
			errs = append(errs, field.Invalid(at.Child("name"), d.Name,
				"must be a persistentVolumeClaim or ephemeral volume"))
		}
		if mounts.Has(d.Name) {
			errs = append(errs, field.Invalid(at.Child("name"), d.Name, "is already used in volumeMounts"))
		}
		if d.DevicePath == "" {
			errs = append(errs, field.Required(at.Child("devicePath"), ""))
		}
		if paths.Has(d.DevicePath) {
			errs = append(errs, field.Invalid(at.Child("devicePath"), d.DevicePath, "must be unique"))
		}
		if back := volumesources.ValidateNoBacksteps(d.DevicePath,
			at.Child("devicePath")); len(back) > 0 {
			errs = append(errs, back...)
		} else {
			paths.Insert(d.DevicePath)
		}
		if mountPaths.Has(d.DevicePath) {
			errs = append(errs, field.Invalid(at.Child("devicePath"), d.DevicePath,
				"is already used as a mountPath in volumeMounts"))
		}
	}
	return errs
}
