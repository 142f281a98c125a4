package podspec

import (
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-base/featuregate"

	"github.com/kinproc/kinproc/chain/core/internal/rules"
	"github.com/kinproc/kinproc/chain/core/internal/rules/addresses"
	"github.com/kinproc/kinproc/chain/features"
)

const maxHostnameLength = 64

// validator validates one pod spec. It holds what the checks of different parts of the spec share.
type validator struct {
	spec *corev1.PodSpec
	// meta is the metadata of the pod. It is nil for templates, whose pods have no name yet.
	meta *metav1.ObjectMeta
	opts Options
	// on reports whether a gate is on.
	on func(featuregate.Feature) bool
	// volumes holds the valid volumes by name.
	volumes map[string]corev1.VolumeSource
	// claims holds the names of the resource claims.
	claims sets.Set[string]
}

func (v *validator) podName() string {
	if v.meta == nil {
		return ""
	}
	return v.meta.Name
}

func (v *validator) isWindows() bool {
	return v.spec.OS != nil && v.spec.OS.Name == corev1.Windows
}

// ownUsers reports whether the pod has its own user namespace.
func (v *validator) ownUsers() bool {
	return hasOwnUsers(v.spec)
}

// ValidateSpec validates a pod spec at path. meta is the metadata of the pod, or nil for a
// template.
func ValidateSpec(
	spec *corev1.PodSpec, meta *metav1.ObjectMeta, path *field.Path, opts Options,
) field.ErrorList {
	v := &validator{
		spec: spec, meta: meta, opts: opts, on: features.Enabled, claims: sets.Set[string]{},
	}
	for _, c := range spec.ResourceClaims {
		v.claims.Insert(c.Name)
	}
	v.claims.Delete("")
	errs := v.validateVolumes(path.Child("volumes"))
	errs = append(errs, v.validateResourceClaims(path.Child("resourceClaims"))...)
	errs = append(errs, v.validateContainers(path.Child("containers"))...)
	errs = append(errs, v.validateInitContainers(path.Child("initContainers"))...)
	errs = append(errs, v.validateEphemeralContainers(path.Child("ephemeralContainers"))...)
	errs = append(errs, v.validatePodResources(path.Child("resources"))...)
	errs = append(errs, v.validateHostNetwork(path)...)
	errs = append(errs, oneOf(path.Child("restartPolicy"), spec.RestartPolicy,
		corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)...)
	errs = append(errs, v.validateDNS(path)...)
	errs = append(errs, metav1validation.ValidateLabels(spec.NodeSelector,
		path.Child("nodeSelector"))...)
	errs = append(errs, v.validateSecurityContext(path.Child("securityContext"))...)
	// In kube-apiserver's internal version, the field is in the security context.
	if spec.ShareProcessNamespace != nil && *spec.ShareProcessNamespace && spec.HostPID {
		errs = append(errs, field.Invalid(path.Child("shareProcessNamespace"), true,
			"may not be set when hostPID is true"))
	}
	errs = append(errs, validateAffinity(spec.Affinity, path.Child("affinity"), opts)...)
	errs = append(errs, v.validateGates(path)...)
	errs = append(errs, validateSpreadConstraints(spec.TopologySpreadConstraints,
		path.Child("topologySpreadConstraints"), opts)...)
	errs = append(errs, v.validateHostProcess(path)...)
	errs = append(errs, v.validateHostUsers(path)...)
	errs = append(errs, v.validateNames(path)...)
	if spec.ActiveDeadlineSeconds != nil {
		errs = append(errs, inRange(path.Child("activeDeadlineSeconds"), *spec.ActiveDeadlineSeconds, 1,
			math.MaxInt32)...)
	}
	errs = append(errs, ValidateTolerations(spec.Tolerations, path.Child("tolerations"), opts)...)
	errs = append(errs, v.validateHostAliases(path.Child("hostAliases"))...)
	if spec.PreemptionPolicy != nil {
		errs = append(errs, oneOf(path.Child("preemptionPolicy"), *spec.PreemptionPolicy,
			corev1.PreemptLowerPriority, corev1.PreemptNever)...)
	}
	errs = append(errs, ValidateResources(&corev1.ResourceRequirements{Limits: spec.Overhead}, nil,
		path.Child("overhead"), opts)...)
	errs = append(errs, v.validateOS(path)...)
	errs = append(errs, validateSchedulingGroup(spec.SchedulingGroup,
		path.Child("schedulingGroup"))...)
	return append(errs, v.validateFileRefVolumes(path)...)
}

func (v *validator) validateNames(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	check := func(name, value string, check func(string, bool) []string) {
		if value != "" {
			errs = append(errs, rules.Invalid(path.Child(name), value, check(value, false))...)
		}
	}
	s := v.spec
	check("serviceAccountName", s.ServiceAccountName, apivalidation.ValidateServiceAccountName)
	check("nodeName", s.NodeName, apivalidation.NameIsDNSSubdomain)
	check("hostname", s.Hostname, apivalidation.NameIsDNSLabel)
	check("subdomain", s.Subdomain, apivalidation.NameIsDNSLabel)
	check("priorityClassName", s.PriorityClassName, apivalidation.NameIsDNSSubdomain)
	if s.RuntimeClassName != nil {
		errs = append(errs, rules.Invalid(path.Child("runtimeClassName"), *s.RuntimeClassName,
			apivalidation.NameIsDNSSubdomain(*s.RuntimeClassName, false))...)
	}
	if s.HostnameOverride != nil {
		at := path.Child("hostnameOverride")
		errs = append(errs, rules.Invalid(at, *s.HostnameOverride,
			validation.IsDNS1123Subdomain(*s.HostnameOverride))...)
		if len(*s.HostnameOverride) > maxHostnameLength {
			errs = append(errs, field.TooLong(at, *s.HostnameOverride, maxHostnameLength))
		}
		if s.SetHostnameAsFQDN != nil && *s.SetHostnameAsFQDN {
			errs = append(errs, field.Forbidden(at, "may not be set when setHostnameAsFQDN is true"))
		}
		if s.HostNetwork {
			errs = append(errs, field.Forbidden(at, "may not be set when hostNetwork is true"))
		}
	}
	return errs
}

func (v *validator) validateGates(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, gate := range v.spec.ReadinessGates {
		at := path.Child("readinessGates").Index(i).Child("conditionType")
		errs = append(errs, rules.Invalid(at, gate.ConditionType,
			validation.IsQualifiedName(string(gate.ConditionType)))...)
	}
	seen := sets.Set[string]{}
	for i, gate := range v.spec.SchedulingGates {
		at := path.Child("schedulingGates").Index(i)
		errs = append(errs, rules.Invalid(at, gate.Name, validation.IsQualifiedName(gate.Name))...)
		if seen.Has(gate.Name) {
			errs = append(errs, field.Duplicate(at, gate.Name))
		}
		seen.Insert(gate.Name)
	}
	return errs
}

const (
	maxNameservers      = 3
	maxSearchPaths      = 32
	maxSearchPathsBytes = 2048
)

func (v *validator) validateDNS(path *field.Path) field.ErrorList {
	policy, config := v.spec.DNSPolicy, v.spec.DNSConfig
	errs := oneOf(path.Child("dnsPolicy"), policy, corev1.DNSClusterFirstWithHostNet,
		corev1.DNSClusterFirst, corev1.DNSDefault, corev1.DNSNone)
	at := path.Child("dnsConfig")
	if policy == corev1.DNSNone {
		switch {
		case config == nil:
			return append(errs, field.Required(at, "must be set when dnsPolicy is None"))
		case len(config.Nameservers) == 0:
			return append(errs, field.Required(at.Child("nameservers"),
				"must have at least one entry when dnsPolicy is None"))
		}
	}
	if config == nil {
		return errs
	}
	if len(config.Nameservers) > maxNameservers {
		errs = append(errs, field.Invalid(at.Child("nameservers"), config.Nameservers,
			"must not have more than 3 nameservers"))
	}
	for i, server := range config.Nameservers {
		errs = append(errs, addresses.IP(at.Child("nameservers").Index(i), server, nil)...)
	}
	if len(config.Searches) > maxSearchPaths {
		errs = append(errs, field.Invalid(at.Child("searches"), config.Searches,
			"must not have more than 32 entries"))
	}
	total := max(0, len(config.Searches)-1)
	for i, search := range config.Searches {
		total += len(search)
		errs = append(errs, rules.Invalid(at.Child("searches").Index(i), search,
			checkSearchPath(search))...)
	}
	if total > maxSearchPathsBytes {
		errs = append(errs, field.Invalid(at.Child("searches"), config.Searches,
			"must not be longer than 2048 characters in total, including separators"))
	}
	for i, option := range config.Options {
		if option.Name == "" {
			errs = append(errs, field.Required(at.Child("options").Index(i),
				"must specify the name of the option"))
		}
	}
	return errs
}

// checkSearchPath validates a search path. It allows underscores, a trailing dot, and a single dot
// for the root (KEP-4427).
func checkSearchPath(search string) []string {
	if search == "." {
		return nil
	}
	if n := len(search); n > 0 && search[n-1] == '.' {
		search = search[:n-1]
	}
	return validation.IsDNS1123SubdomainWithUnderscore(search)
}

func (v *validator) validateHostAliases(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, alias := range v.spec.HostAliases {
		errs = append(errs, addresses.IP(path.Index(i).Child("ip"), alias.IP, nil)...)
		for j, name := range alias.Hostnames {
			errs = append(errs, rules.Invalid(path.Index(i).Child("hostnames").Index(j), name,
				validation.IsDNS1123Subdomain(name))...)
		}
	}
	return errs
}

func (v *validator) validateHostNetwork(path *field.Path) field.ErrorList {
	if !v.spec.HostNetwork {
		return nil
	}
	var errs field.ErrorList
	for i, c := range v.spec.Containers {
		for j, port := range c.Ports {
			if port.HostPort != 0 && port.HostPort != port.ContainerPort {
				at := path.Child("containers").Index(i).Child("ports").Index(j).Child("hostPort")
				errs = append(errs, field.Invalid(at, port.HostPort,
					"must match `containerPort` when `hostNetwork` is true"))
			}
		}
	}
	return errs
}

func (v *validator) validateHostUsers(path *field.Path) field.ErrorList {
	if !v.ownUsers() {
		return nil
	}
	var errs field.ErrorList
	forbid := func(set bool, at *field.Path) {
		if set {
			errs = append(errs, field.Forbidden(at, "when `hostUsers` is false"))
		}
	}
	// The unusual capitals are those of kube-apiserver.
	forbid(v.spec.HostNetwork && !v.opts.ownUsersInHostNetwork, path.Child("hostNetwork"))
	forbid(v.spec.HostPID, path.Child("HostPID"))
	forbid(v.spec.HostIPC, path.Child("HostIPC"))
	if !v.opts.ownUsersWithDevices {
		eachContainer(v.spec, func(c *corev1.Container, p *field.Path) {
			forbid(len(c.VolumeDevices) > 0, below(path, p).Child("volumeDevices"))
		})
	}
	return errs
}

// supported requires value to be one of values. An empty value is as unsupported as any other. Use
// [oneOf] where it means that the value is missing.
func supported[T ~string](path *field.Path, value T, values ...T) field.ErrorList {
	if slices.Contains(values, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, value, values)}
}

// oneOf requires value to be one of the supported values. An empty value is reported as missing.
func oneOf[T ~string](path *field.Path, value T, supported ...T) field.ErrorList {
	switch {
	case slices.Contains(supported, value):
		return nil
	case value == "":
		return field.ErrorList{field.Required(path, "")}
	}
	return field.ErrorList{field.NotSupported(path, value, supported)}
}

func inRange[T int32 | int64](path *field.Path, value, low, high T) field.ErrorList {
	if value < low || value > high {
		return field.ErrorList{
			field.Invalid(path, value, validation.InclusiveRangeError(int(low), int(high))),
		}
	}
	return nil
}

func notNegative[T int32 | int64](path *field.Path, value T) field.ErrorList {
	return apivalidation.ValidateNonnegativeField(int64(value), path)
}
