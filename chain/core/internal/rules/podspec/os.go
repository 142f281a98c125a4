package podspec

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateOS checks that the pod asks for nothing that its operating system does not have.
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
	return field.ErrorList{field.NotSupported(path.Child("os"), v.spec.OS.Name, []corev1.OSName{corev1.Linux, corev1.Windows})}
}

func (v *validator) validateLinux(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	forbid := func(set bool, at *field.Path) {
		if set {
			errs = append(errs, field.Forbidden(at, "Linux has no such thing"))
		}
	}
	if sc := v.spec.SecurityContext; sc != nil {
		forbid(sc.WindowsOptions != nil, path.Child("securityContext", "windowsOptions"))
	}
	eachContainer(v.spec, func(c *corev1.Container, p *field.Path) {
		if c.SecurityContext != nil {
			forbid(c.SecurityContext.WindowsOptions != nil, below(path, p).Child("securityContext", "windowsOptions"))
		}
	})
	return errs
}

func (v *validator) validateWindows(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	forbid := func(set bool, at *field.Path) {
		if set {
			errs = append(errs, field.Forbidden(at, "Windows has no such thing"))
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

// validateHostProcess checks that either all containers of a pod are Windows HostProcess containers or none is.
func (v *validator) validateHostProcess(path *field.Path) field.ErrorList {
	var podWide *bool
	if sc := v.spec.SecurityContext; sc != nil && sc.WindowsOptions != nil {
		podWide = sc.WindowsOptions.HostProcess
	}
	var errs field.ErrorList
	yes, no := 0, 0
	eachContainer(v.spec, func(c *corev1.Container, p *field.Path) {
		own := podWide
		if c.SecurityContext != nil && c.SecurityContext.WindowsOptions != nil && c.SecurityContext.WindowsOptions.HostProcess != nil {
			own = c.SecurityContext.WindowsOptions.HostProcess
			if podWide != nil && *podWide != *own {
				at := below(path, p).Child("securityContext", "windowsOptions", "hostProcess")
				errs = append(errs, field.Invalid(at, *own, "must agree with the pod's"))
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
		errs = append(errs, field.Invalid(path, "", "either all containers are HostProcess containers or none"))
	}
	if !v.spec.HostNetwork {
		errs = append(errs, field.Invalid(path.Child("hostNetwork"), false, "HostProcess containers need it"))
	}
	return errs
}

// below puts a relative path, such as those of eachContainer, below another one.
func below(path, relative *field.Path) *field.Path {
	if path == nil {
		return relative
	}
	return path.Child(relative.String())
}
