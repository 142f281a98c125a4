package podspec

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateOS rejects fields that the pod's operating system does not support.
func (v *validator) validateOS(path *field.Path) field.ErrorList {
	if v.spec.OS == nil {
		return nil
	}
	switch v.spec.OS.Name {
	case "":
		return field.ErrorList{field.Required(path.Child("os", "name"), "")}
	case corev1.Windows:
		return v.validateWindows(path)
	case corev1.Linux:
		return v.validateLinux(path)
	}
	return field.ErrorList{field.NotSupported(path.Child("os"), v.spec.OS.Name, []corev1.OSName{
		corev1.Linux, corev1.Windows,
	})}
}

func (v *validator) validateLinux(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	forbid := func(set bool, at *field.Path) {
		if set {
			errs = append(errs, field.Forbidden(at, "cannot be set for a linux pod"))
		}
	}
	if sc := v.spec.SecurityContext; sc != nil {
		forbid(sc.WindowsOptions != nil, path.Child("securityContext", "windowsOptions"))
	}
	eachContainer(v.spec, func(c *corev1.Container, p *field.Path) {
		if c.SecurityContext != nil {
			forbid(c.SecurityContext.WindowsOptions != nil,
				below(path, p).Child("securityContext", "windowsOptions"))
		}
	})
	return errs
}

func (v *validator) validateWindows(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	forbid := func(set bool, at *field.Path) {
		if set {
			errs = append(errs, field.Forbidden(at, "cannot be set for a windows pod"))
		}
	}
	forbid(v.spec.HostPID, path.Child("hostPID"))
	forbid(v.spec.HostIPC, path.Child("hostIPC"))
	forbid(v.spec.HostUsers != nil, path.Child("hostUsers"))
	forbid(v.spec.ShareProcessNamespace != nil, path.Child("shareProcessNamespace"))
	if sc := v.spec.SecurityContext; sc != nil {
		at := path.Child("securityContext")
		forbid(sc.AppArmorProfile != nil, at.Child("appArmorProfile"))
		forbid(sc.SELinuxOptions != nil, at.Child("seLinuxOptions"))
		forbid(sc.SeccompProfile != nil, at.Child("seccompProfile"))
		forbid(sc.FSGroup != nil, at.Child("fsGroup"))
		forbid(sc.FSGroupChangePolicy != nil, at.Child("fsGroupChangePolicy"))
		forbid(sc.SELinuxChangePolicy != nil, at.Child("seLinuxChangePolicy"))
		forbid(len(sc.Sysctls) > 0, at.Child("sysctls"))
		forbid(sc.RunAsUser != nil, at.Child("runAsUser"))
		forbid(sc.RunAsGroup != nil, at.Child("runAsGroup"))
		forbid(sc.SupplementalGroups != nil, at.Child("supplementalGroups"))
		forbid(sc.SupplementalGroupsPolicy != nil, at.Child("supplementalGroupsPolicy"))
	}
	eachContainer(v.spec, func(c *corev1.Container, p *field.Path) {
		sc, at := c.SecurityContext, below(path, p).Child("securityContext")
		if sc == nil {
			return
		}
		forbid(sc.AppArmorProfile != nil, at.Child("appArmorProfile"))
		forbid(sc.SELinuxOptions != nil, at.Child("seLinuxOptions"))
		forbid(sc.SeccompProfile != nil, at.Child("seccompProfile"))
		forbid(sc.Capabilities != nil, at.Child("capabilities"))
		forbid(sc.ReadOnlyRootFilesystem != nil, at.Child("readOnlyRootFilesystem"))
		forbid(sc.Privileged != nil, at.Child("privileged"))
		forbid(sc.AllowPrivilegeEscalation != nil, at.Child("allowPrivilegeEscalation"))
		forbid(sc.ProcMount != nil, at.Child("procMount"))
		forbid(sc.RunAsUser != nil, at.Child("runAsUser"))
		forbid(sc.RunAsGroup != nil, at.Child("runAsGroup"))
	})
	return errs
}

// validateHostProcess requires that all or none of a pod's containers are Windows HostProcess
// containers.
func (v *validator) validateHostProcess(path *field.Path) field.ErrorList {
	var podWide *bool
	if sc := v.spec.SecurityContext; sc != nil && sc.WindowsOptions != nil {
		podWide = sc.WindowsOptions.HostProcess
	}
	var errs field.ErrorList
	yes, no := 0, 0
	eachContainer(v.spec, func(c *corev1.Container, p *field.Path) {
		own := podWide
		if c.SecurityContext != nil && c.SecurityContext.WindowsOptions != nil &&
			c.SecurityContext.WindowsOptions.HostProcess != nil {
			own = c.SecurityContext.WindowsOptions.HostProcess
			if podWide != nil && *podWide != *own {
				at := below(path, p).Child("securityContext", "windowsOptions", "hostProcess")
				errs = append(errs, field.Invalid(at, *own, "must match the pod's hostProcess"))
			}
		}
		if own != nil && *own {
			yes++
		} else {
			no++
		}
	})
	if yes == 0 {
		return errs
	}
	if no > 0 {
		errs = append(errs, field.Invalid(path, "",
			"all containers must be HostProcess containers if any container is one"))
	}
	if !v.spec.HostNetwork {
		errs = append(errs, field.Invalid(path.Child("hostNetwork"), false,
			"must be true if the pod has HostProcess containers"))
	}
	return errs
}

// below appends a relative path, such as those from eachContainer, to path.
func below(path, relative *field.Path) *field.Path {
	if path == nil {
		return relative
	}
	return path.Child(relative.String())
}
