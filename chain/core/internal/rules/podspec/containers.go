package podspec

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/core/internal/rules"
	"github.com/kinproc/kinproc/chain/features"
)

const (
	maxRestartRules     = 20
	maxRestartRuleCodes = 255
)

func (v *validator) validateContainers(path *field.Path) field.ErrorList {
	if len(v.spec.Containers) == 0 {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	names := sets.Set[string]{}
	for i := range v.spec.Containers {
		c, at := &v.spec.Containers[i], path.Index(i)
		errs = append(errs, v.validateContainer(c, at)...)
		if v.opts.pod {
			errs = append(errs, validateImageSpace(c, at)...)
		}
		if names.Has(c.Name) {
			errs = append(errs, field.Duplicate(at.Child("name"), c.Name))
		}
		names.Insert(c.Name)
		errs = append(errs, v.validateRestart(c, at)...)
		errs = append(errs, v.validateLifecycle(c.Lifecycle, at.Child("lifecycle"))...)
		errs = append(errs, validateProbes(c, at)...)
	}
	return append(errs, validateHostPorts(v.spec.Containers, path)...)
}

func (v *validator) validateInitContainers(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := sets.Set[string]{}
	for _, c := range v.spec.Containers {
		names.Insert(c.Name)
	}
	for i := range v.spec.InitContainers {
		c, at := &v.spec.InitContainers[i], path.Index(i)
		errs = append(errs, v.validateContainer(c, at)...)
		if v.opts.pod {
			errs = append(errs, validateImageSpace(c, at)...)
		}
		if names.Has(c.Name) {
			errs = append(errs, field.Duplicate(at.Child("name"), c.Name))
		} else if c.Name != "" {
			names.Insert(c.Name)
		}
		// Init containers run one after the other and may use the same ports. As in kube-apiserver,
		// the index in the path is always 0.
		errs = append(errs, validateHostPorts(v.spec.InitContainers[i:i+1], path)...)
		errs = append(errs, v.validateInitRestart(c, at)...)
		if isSidecar(c) {
			errs = append(errs, v.validateLifecycle(c.Lifecycle, at.Child("lifecycle"))...)
			errs = append(errs, validateProbes(c, at)...)
			continue
		}
		forbid := func(set bool, name string) {
			if set {
				errs = append(errs, field.Forbidden(at.Child(name),
					"may not be set for init containers without restartPolicy=Always"))
			}
		}
		forbid(c.Lifecycle != nil, "lifecycle")
		forbid(c.LivenessProbe != nil, "livenessProbe")
		forbid(c.ReadinessProbe != nil, "readinessProbe")
		forbid(c.StartupProbe != nil, "startupProbe")
		if !v.opts.restartingInitContainers {
			errs = append(errs, forbidResizeRestart(c, at.Child("resizePolicy"))...)
		}
	}
	return errs
}

// forbidResizeRestart rejects a resize policy that restarts an init container that runs to
// completion.
func forbidResizeRestart(c *corev1.Container, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, p := range c.ResizePolicy {
		if p.RestartPolicy == corev1.RestartContainer {
			errs = append(errs, field.Invalid(path.Index(i).Child("restartPolicy"), p.RestartPolicy,
				"must be NotRequired for init containers that run to completion"))
		}
	}
	return errs
}

// isSidecar reports whether an init container keeps running alongside the regular containers.
func isSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

func (v *validator) validateEphemeralContainers(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	targets, names := sets.Set[string]{}, sets.Set[string]{}
	eachContainer(v.spec, func(c *corev1.Container, p *field.Path) {
		if !strings.HasPrefix(p.String(), "ephemeral") {
			targets.Insert(c.Name)
			names.Insert(c.Name)
		}
	})
	for i := range v.spec.EphemeralContainers {
		e, at := &v.spec.EphemeralContainers[i], path.Index(i)
		c := (*corev1.Container)(&e.EphemeralContainerCommon)
		errs = append(errs, v.validateContainer(c, at)...)
		errs = append(errs, validateImageSpace(c, at)...)
		if names.Has(e.Name) {
			errs = append(errs, field.Duplicate(at.Child("name"), e.Name))
		}
		names.Insert(e.Name)
		if e.TargetContainerName != "" && !targets.Has(e.TargetContainerName) {
			errs = append(errs, field.NotFound(at.Child("targetContainerName"), e.TargetContainerName))
		}
		errs = append(errs, forbidAllBut(e.EphemeralContainerCommon, at, "Name", "Image",
			"Command", "Args", "WorkingDir", "EnvFrom", "Env", "VolumeMounts", "VolumeDevices",
			"TerminationMessagePath", "TerminationMessagePolicy", "ImagePullPolicy", "SecurityContext",
			"Stdin", "StdinOnce", "TTY")...)
		for j, mount := range e.VolumeMounts {
			for name, subPath := range map[string]string{
				"subPath":     mount.SubPath,
				"subPathExpr": mount.SubPathExpr,
			} {
				if subPath != "" {
					errs = append(errs, field.Forbidden(at.Child("volumeMounts").Index(j).Child(name),
						"cannot be set for an ephemeral container"))
				}
			}
		}
	}
	return errs
}

// validateContainer validates the fields that all types of containers have in common.
func (v *validator) validateContainer(c *corev1.Container, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if c.Name == "" {
		errs = append(errs, field.Required(path.Child("name"), ""))
	} else {
		errs = append(errs, rules.Invalid(path.Child("name"), c.Name,
			validation.IsDNS1123Label(c.Name))...)
	}
	errs = append(errs, required(path.Child("image"), c.Image)...)
	errs = append(errs, oneOf(path.Child("terminationMessagePolicy"), c.TerminationMessagePolicy,
		corev1.TerminationMessageReadFile, corev1.TerminationMessageFallbackToLogsOnError)...)
	errs = append(errs, validatePorts(c.Ports, path.Child("ports"))...)
	errs = append(errs, v.validateEnv(c.Env, path.Child("env"))...)
	errs = append(errs, validateEnvFrom(c.EnvFrom, path.Child("envFrom"))...)
	errs = append(errs, v.validateMounts(c, path.Child("volumeMounts"))...)
	errs = append(errs, v.validateDevices(c, path.Child("volumeDevices"))...)
	errs = append(errs, validatePullPolicy(c.ImagePullPolicy, path.Child("imagePullPolicy"))...)
	errs = append(errs, ValidateResources(&c.Resources, v.claims, path.Child("resources"), v.opts)...)
	errs = append(errs, v.validateResizePolicy(c.ResizePolicy, path.Child("resizePolicy"))...)
	return append(errs, v.validateContainerSecurity(c.SecurityContext,
		path.Child("securityContext"))...)
}

func validatePullPolicy(policy corev1.PullPolicy, path *field.Path) field.ErrorList {
	return oneOf(path, policy, corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)
}

// validateImageSpace rejects white space around the image. Templates may have it: some use it as a
// placeholder for an image that is filled in later.
func validateImageSpace(c *corev1.Container, path *field.Path) field.ErrorList {
	if strings.TrimSpace(c.Image) == c.Image {
		return nil
	}
	return field.ErrorList{
		field.Invalid(path.Child("image"), c.Image, "must not have leading or trailing white space"),
	}
}

// validateInitRestart validates the restart policy of an init container.
func (v *validator) validateInitRestart(c *corev1.Container, path *field.Path) field.ErrorList {
	switch {
	case c.RestartPolicy == nil && len(c.RestartPolicyRules) > 0:
		return field.ErrorList{rulesNeedPolicy(path)}
	case isSidecar(c) && len(c.RestartPolicyRules) > 0 && !v.mayRestartAll():
		return field.ErrorList{field.Forbidden(path.Child("restartPolicyRules"),
			"may not be set for init containers with the restart policy Always")}
	}
	return v.validateRestart(c, path)
}

// mayRestartAll reports whether rules may restart the whole pod, and sidecars may have rules.
func (v *validator) mayRestartAll() bool {
	return v.opts.restartsAll || v.on(features.RestartAllContainersOnContainerExits)
}

func rulesNeedPolicy(path *field.Path) *field.Error {
	return field.Required(path.Child("restartPolicy"), "must be set when restartPolicyRules is set")
}

// validateRestart validates the restart policy of a container (KEP-753, KEP-5307).
func (v *validator) validateRestart(c *corev1.Container, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if c.RestartPolicy != nil {
		errs = append(errs, supported(path.Child("restartPolicy"), *c.RestartPolicy,
			corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyNever,
			corev1.ContainerRestartPolicyOnFailure)...)
	} else if len(c.RestartPolicyRules) > 0 {
		errs = append(errs, rulesNeedPolicy(path))
	}
	actions := []corev1.ContainerRestartRuleAction{corev1.ContainerRestartRuleActionRestart}
	if v.mayRestartAll() {
		actions = append(actions, corev1.ContainerRestartRuleActionRestartAllContainers)
	}
	rules := path.Child("restartPolicyRules")
	if n := len(c.RestartPolicyRules); n > maxRestartRules {
		errs = append(errs, field.TooMany(rules, n, maxRestartRules))
	}
	for i, rule := range c.RestartPolicyRules {
		at := rules.Index(i)
		errs = append(errs, supported(at.Child("action"), rule.Action, actions...)...)
		if rule.ExitCodes == nil {
			errs = append(errs, field.Required(at.Child("exitCodes"),
				"must specify the exit codes that the rule matches"))
			continue
		}
		errs = append(errs, supported(at.Child("exitCodes", "operator"), rule.ExitCodes.Operator,
			corev1.ContainerRestartRuleOnExitCodesOpIn, corev1.ContainerRestartRuleOnExitCodesOpNotIn)...)
		if n := len(rule.ExitCodes.Values); n > maxRestartRuleCodes {
			errs = append(errs, field.TooMany(at.Child("exitCodes", "values"), n, maxRestartRuleCodes))
		}
	}
	return errs
}

func (v *validator) validateResizePolicy(
	policies []corev1.ContainerResizePolicy, path *field.Path,
) field.ErrorList {
	var errs field.ErrorList
	seen := sets.Set[corev1.ResourceName]{}
	for i, p := range policies {
		if seen.Has(p.ResourceName) {
			errs = append(errs, field.Duplicate(path.Index(i), p.ResourceName))
		}
		seen.Insert(p.ResourceName)
		errs = append(errs, oneOf(path, p.ResourceName, corev1.ResourceCPU, corev1.ResourceMemory)...)
		errs = append(errs, oneOf(path, p.RestartPolicy, corev1.NotRequired, corev1.RestartContainer)...)
		if v.spec.RestartPolicy == corev1.RestartPolicyNever && p.RestartPolicy != corev1.NotRequired {
			errs = append(errs, field.Invalid(path, p.RestartPolicy,
				"must be NotRequired when the pod's restartPolicy is Never"))
		}
	}
	return errs
}

func validatePorts(ports []corev1.ContainerPort, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := sets.Set[string]{}
	for i, port := range ports {
		at := path.Index(i)
		if port.Name != "" {
			if msgs := validation.IsValidPortName(port.Name); len(msgs) > 0 {
				errs = append(errs, rules.Invalid(at.Child("name"), port.Name, msgs)...)
			} else if names.Has(port.Name) {
				errs = append(errs, field.Duplicate(at.Child("name"), port.Name))
			}
			names.Insert(port.Name)
		}
		if port.ContainerPort == 0 {
			errs = append(errs, field.Required(at.Child("containerPort"), ""))
		} else {
			errs = append(errs, rules.Invalid(at.Child("containerPort"), port.ContainerPort,
				validation.IsValidPortNum(int(port.ContainerPort)))...)
		}
		if port.HostPort != 0 {
			errs = append(errs, rules.Invalid(at.Child("hostPort"), port.HostPort,
				validation.IsValidPortNum(int(port.HostPort)))...)
		}
		errs = append(errs, oneOf(at.Child("protocol"), port.Protocol, corev1.ProtocolSCTP,
			corev1.ProtocolTCP, corev1.ProtocolUDP)...)
	}
	return errs
}

// validateHostPorts rejects containers that use the same port of the node.
func validateHostPorts(containers []corev1.Container, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	taken := sets.Set[string]{}
	for i, c := range containers {
		for j, port := range c.Ports {
			if port.HostPort == 0 {
				continue
			}
			key := fmt.Sprintf("%s/%s/%d", port.Protocol, port.HostIP, port.HostPort)
			if taken.Has(key) {
				errs = append(errs,
					field.Duplicate(path.Index(i).Child("ports").Index(j).Child("hostPort"), key))
			}
			taken.Insert(key)
		}
	}
	return errs
}
