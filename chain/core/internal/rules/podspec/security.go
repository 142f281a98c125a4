package podspec

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-helpers/node/util/sysctl"

	"github.com/kinproc/kinproc/chain/core/internal/rules"
	"github.com/kinproc/kinproc/chain/features"
)

const (
	maxSysctlLength          = 253
	maxLocalProfileLength    = 4095
	maxCredentialSpecLength  = 64 << 10
	maxRunAsUserNameLength   = 104
	maxRunAsUserDomainLength = 256
)

// sysctlName allows dots and slashes as separators, as sysctl(8) does.
var sysctlName = regexp.MustCompile(
	`^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$`)

// IsValidSysctlName reports whether name is a valid sysctl name.
func IsValidSysctlName(name string) bool {
	return len(name) <= maxSysctlLength && sysctlName.MatchString(name)
}

func (v *validator) validateSecurityContext(path *field.Path) field.ErrorList {
	sc := v.spec.SecurityContext
	if sc == nil {
		return nil
	}
	var errs field.ErrorList
	errs = append(errs, validateID(sc.FSGroup, path.Child("fsGroup"))...)
	errs = append(errs, validateID(sc.RunAsUser, path.Child("runAsUser"))...)
	errs = append(errs, validateID(sc.RunAsGroup, path.Child("runAsGroup"))...)
	for i := range sc.SupplementalGroups {
		errs = append(errs, validateID(&sc.SupplementalGroups[i],
			path.Child("supplementalGroups").Index(i))...)
	}
	errs = append(errs, v.validateSysctls(path.Child("sysctls"))...)
	if sc.FSGroupChangePolicy != nil {
		errs = append(errs, supported(path.Child("fsGroupChangePolicy"), *sc.FSGroupChangePolicy,
			corev1.FSGroupChangeOnRootMismatch, corev1.FSGroupChangeAlways)...)
	}
	if sc.SupplementalGroupsPolicy != nil {
		errs = append(errs, supported(path.Child("supplementalGroupsPolicy"),
			*sc.SupplementalGroupsPolicy,
			corev1.SupplementalGroupsPolicyMerge, corev1.SupplementalGroupsPolicyStrict)...)
	}
	if sc.SELinuxChangePolicy != nil {
		policies := []corev1.PodSELinuxChangePolicy{corev1.SELinuxChangePolicyRecursive}
		if v.opts.seLinuxPolicies || v.on(features.SELinuxMount) {
			policies = []corev1.PodSELinuxChangePolicy{
				corev1.SELinuxChangePolicyMountOption, corev1.SELinuxChangePolicyRecursive,
			}
		}
		errs = append(errs, supported(path.Child("seLinuxChangePolicy"), *sc.SELinuxChangePolicy,
			policies...)...)
	}
	errs = append(errs, validateSeccomp(sc.SeccompProfile, path.Child("seccompProfile"))...)
	errs = append(errs, validateWindowsOptions(sc.WindowsOptions, path.Child("windowsOptions"))...)
	return append(errs, validateAppArmor(sc.AppArmorProfile, path.Child("appArmorProfile"))...)
}

// validateID validates a user ID or a group ID.
func validateID(id *int64, path *field.Path) field.ErrorList {
	if id == nil {
		return nil
	}
	return rules.Invalid(path, *id, validation.IsValidUserID(*id))
}

func (v *validator) validateSysctls(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := sets.Set[string]{}
	for i, s := range v.spec.SecurityContext.Sysctls {
		at := path.Index(i).Child("name")
		switch {
		case s.Name == "":
			errs = append(errs, field.Required(at, ""))
		case !IsValidSysctlName(s.Name):
			errs = append(errs, field.Invalid(at, s.Name, "must be a valid sysctl name"))
		case seen.Has(s.Name):
			errs = append(errs, field.Duplicate(at, s.Name))
		}
		if with := hostSysctl(v.spec, s.Name); with != "" && !v.opts.hostSysctls {
			errs = append(errs, field.Invalid(at, s.Name,
				"affects the whole node and may not be set with "+with))
		}
		seen.Insert(s.Name)
	}
	return errs
}

// hostSysctl returns the name of the field, if any, that makes the sysctl apply to the node instead
// of the pod.
func hostSysctl(spec *corev1.PodSpec, name string) string {
	switch namespace, _, _ := sysctl.GetNamespace(name); {
	case namespace == sysctl.NetNamespace && spec.HostNetwork:
		return "hostNetwork"
	case namespace == sysctl.IPCNamespace && spec.HostIPC:
		return "hostIPC"
	}
	return ""
}

func (v *validator) validateContainerSecurity(
	sc *corev1.SecurityContext, path *field.Path,
) field.ErrorList {
	if sc == nil {
		return nil
	}
	errs := validateID(sc.RunAsUser, path.Child("runAsUser"))
	errs = append(errs, validateID(sc.RunAsGroup, path.Child("runAsGroup"))...)
	if sc.ProcMount != nil {
		errs = append(errs, supported(path.Child("procMount"), *sc.ProcMount, corev1.DefaultProcMount,
			corev1.UnmaskedProcMount)...)
		if *sc.ProcMount == corev1.UnmaskedProcMount && !v.ownUsers() {
			errs = append(errs, field.Invalid(path.Child("procMount"), *sc.ProcMount,
				"may only be set when hostUsers is false"))
		}
	}
	errs = append(errs, validateSeccomp(sc.SeccompProfile, path.Child("seccompProfile"))...)
	if sc.AllowPrivilegeEscalation != nil && !*sc.AllowPrivilegeEscalation {
		if sc.Privileged != nil && *sc.Privileged {
			errs = append(errs, field.Invalid(path, sc,
				"cannot set allowPrivilegeEscalation to false and privileged to true"))
		}
		if sc.Capabilities != nil && slices.Contains(sc.Capabilities.Add, "CAP_SYS_ADMIN") {
			errs = append(errs, field.Invalid(path, sc,
				"cannot set allowPrivilegeEscalation to false and add CAP_SYS_ADMIN"))
		}
	}
	errs = append(errs, validateWindowsOptions(sc.WindowsOptions, path.Child("windowsOptions"))...)
	return append(errs, validateAppArmor(sc.AppArmorProfile, path.Child("appArmorProfile"))...)
}

func validateSeccomp(p *corev1.SeccompProfile, path *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	errs := oneOf(path.Child("type"), p.Type, corev1.SeccompProfileTypeLocalhost,
		corev1.SeccompProfileTypeRuntimeDefault, corev1.SeccompProfileTypeUnconfined)
	at := path.Child("localhostProfile")
	switch {
	case p.Type != corev1.SeccompProfileTypeLocalhost && p.LocalhostProfile != nil:
		errs = append(errs, field.Invalid(at, *p.LocalhostProfile,
			"may only be set when type is Localhost"))
	case p.Type == corev1.SeccompProfileTypeLocalhost && p.LocalhostProfile == nil:
		errs = append(errs, field.Required(at, "must be set when type is Localhost"))
	case p.LocalhostProfile != nil:
		errs = append(errs, validateDescendingPath(*p.LocalhostProfile, at)...)
	}
	return errs
}

func validateAppArmor(p *corev1.AppArmorProfile, path *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	at := path.Child("localhostProfile")
	switch p.Type {
	case corev1.AppArmorProfileTypeLocalhost:
		if p.LocalhostProfile == nil {
			return field.ErrorList{field.Required(at, "must be set when type is Localhost")}
		}
		name := *p.LocalhostProfile
		var errs field.ErrorList
		switch trimmed := strings.TrimSpace(name); {
		case trimmed != name:
			errs = append(errs, field.Invalid(at, name, "must not have leading or trailing white space"))
		case trimmed == "":
			errs = append(errs, field.Required(at, "must be set when type is Localhost"))
		}
		if len(name) > maxLocalProfileLength {
			errs = append(errs, field.TooLong(at, name, maxLocalProfileLength))
		}
		return errs
	case corev1.AppArmorProfileTypeRuntimeDefault, corev1.AppArmorProfileTypeUnconfined:
		if p.LocalhostProfile != nil {
			return field.ErrorList{
				field.Invalid(at, *p.LocalhostProfile, "may only be set when type is Localhost"),
			}
		}
		return nil
	}
	return oneOf(path.Child("type"), p.Type, corev1.AppArmorProfileTypeLocalhost,
		corev1.AppArmorProfileTypeRuntimeDefault, corev1.AppArmorProfileTypeUnconfined)
}

func validateWindowsOptions(
	o *corev1.WindowsSecurityContextOptions, path *field.Path,
) field.ErrorList {
	if o == nil {
		return nil
	}
	var errs field.ErrorList
	if o.GMSACredentialSpecName != nil {
		errs = append(errs, rules.Invalid(path.Child("gmsaCredentialSpecName"),
			*o.GMSACredentialSpecName, validation.IsDNS1123Subdomain(*o.GMSACredentialSpecName))...)
	}
	if o.GMSACredentialSpec != nil {
		at := path.Child("gmsaCredentialSpec")
		if n := len(*o.GMSACredentialSpec); n == 0 || n > maxCredentialSpecLength {
			errs = append(errs, field.Invalid(at, *o.GMSACredentialSpec,
				fmt.Sprintf("must be between 1 and %d bytes long", maxCredentialSpecLength)))
		}
	}
	if o.RunAsUserName != nil {
		errs = append(errs, rules.Invalid(path.Child("runAsUserName"), *o.RunAsUserName,
			checkWindowsUser(*o.RunAsUserName))...)
	}
	return errs
}

var (
	windowsUser     = regexp.MustCompile(`^[^"/\\:;|=,+*?<>@\[\]]+$`)
	windowsNetBIOS  = regexp.MustCompile(`^[^\\/:*?"<>|.][^\\/:*?"<>|]{0,14}$`)
	windowsDNSLabel = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?$`)
)

// checkWindowsUser returns what is wrong with a name of the form DOMAIN\user or user.
func checkWindowsUser(name string) []string {
	if name == "" {
		return []string{"must not be empty"}
	}
	if strings.ContainsFunc(name, func(r rune) bool {
		return r < unicode.MaxASCII && unicode.IsControl(r) || r == unicode.MaxASCII
	}) {
		return []string{"must not contain control characters"}
	}
	domain, user, qualified := strings.Cut(name, `\`)
	if !qualified {
		user = name
	}
	if strings.Contains(user, `\`) {
		return []string{"must not contain more than one backslash"}
	}
	var msgs []string
	if qualified {
		dns := true
		for label := range strings.SplitSeq(domain, ".") {
			dns = dns && windowsDNSLabel.MatchString(label)
		}
		if len(domain) >= maxRunAsUserDomainLength || !(windowsNetBIOS.MatchString(domain) || dns) {
			msgs = append(msgs, "must have a valid domain")
		}
	}
	switch {
	case user == "":
		msgs = append(msgs, "must have a user name")
	case len(user) > maxRunAsUserNameLength:
		msgs = append(msgs, fmt.Sprintf("the user name must be at most %d characters long",
			maxRunAsUserNameLength))
	case strings.Trim(user, ". ") == "":
		msgs = append(msgs, "the user name must not consist of periods and spaces only")
	case !windowsUser.MatchString(user):
		msgs = append(msgs, "the user name must not contain characters that Windows does not allow")
	}
	return msgs
}

// AppArmorFromAnnotation returns the profile in an AppArmor annotation from before v1.30, or nil if
// it is invalid.
func AppArmorFromAnnotation(value string) *corev1.AppArmorProfile {
	profile := &corev1.AppArmorProfile{}
	name, local := strings.CutPrefix(value, corev1.DeprecatedAppArmorBetaProfileNamePrefix)
	switch {
	case local:
		profile.Type, profile.LocalhostProfile = corev1.AppArmorProfileTypeLocalhost, &name
	case value == corev1.DeprecatedAppArmorBetaProfileNameUnconfined:
		profile.Type = corev1.AppArmorProfileTypeUnconfined
	case value == corev1.DeprecatedAppArmorBetaProfileRuntimeDefault:
		profile.Type = corev1.AppArmorProfileTypeRuntimeDefault
	}
	if len(validateAppArmor(profile, field.NewPath("appArmorProfile"))) > 0 {
		return nil
	}
	return profile
}
