package podspec

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/core/internal/rules"
)

func validateProbes(c *corev1.Container, path *field.Path) field.ErrorList {
	errs := validateProbe(c.LivenessProbe, path.Child("livenessProbe"))
	errs = append(errs, succeedsOnce(c.LivenessProbe, path.Child("livenessProbe"))...)
	errs = append(errs, validateProbe(c.ReadinessProbe, path.Child("readinessProbe"))...)
	if p := c.ReadinessProbe; p != nil && p.TerminationGracePeriodSeconds != nil {
		at := path.Child("readinessProbe", "terminationGracePeriodSeconds")
		errs = append(errs, field.Invalid(at, *p.TerminationGracePeriodSeconds,
			"may not be set for readiness probes"))
	}
	errs = append(errs, validateProbe(c.StartupProbe, path.Child("startupProbe"))...)
	return append(errs, succeedsOnce(c.StartupProbe, path.Child("startupProbe"))...)
}

func succeedsOnce(p *corev1.Probe, path *field.Path) field.ErrorList {
	if p != nil && p.SuccessThreshold != 1 {
		return field.ErrorList{
			field.Invalid(path.Child("successThreshold"), p.SuccessThreshold, "must be 1"),
		}
	}
	return nil
}

func validateProbe(p *corev1.Probe, path *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	errs := validateHandler(handler{p.Exec, p.HTTPGet, p.TCPSocket, p.GRPC, nil}, nil, path)
	errs = append(errs, notNegative(path.Child("initialDelaySeconds"), p.InitialDelaySeconds)...)
	errs = append(errs, notNegative(path.Child("timeoutSeconds"), p.TimeoutSeconds)...)
	errs = append(errs, notNegative(path.Child("periodSeconds"), p.PeriodSeconds)...)
	errs = append(errs, notNegative(path.Child("successThreshold"), p.SuccessThreshold)...)
	errs = append(errs, notNegative(path.Child("failureThreshold"), p.FailureThreshold)...)
	if p.TerminationGracePeriodSeconds != nil && *p.TerminationGracePeriodSeconds <= 0 {
		errs = append(errs, field.Invalid(path.Child("terminationGracePeriodSeconds"),
			*p.TerminationGracePeriodSeconds, "must be greater than 0"))
	}
	return errs
}

func (v *validator) validateLifecycle(l *corev1.Lifecycle, path *field.Path) field.ErrorList {
	if l == nil {
		return nil
	}
	var errs field.ErrorList
	if h := l.PostStart; h != nil {
		errs = append(errs, validateHandler(handler{h.Exec, h.HTTPGet, h.TCPSocket, nil, h.Sleep},
			v.spec.TerminationGracePeriodSeconds, path.Child("postStart"))...)
	}
	if h := l.PreStop; h != nil {
		errs = append(errs, validateHandler(handler{h.Exec, h.HTTPGet, h.TCPSocket, nil, h.Sleep},
			v.spec.TerminationGracePeriodSeconds, path.Child("preStop"))...)
	}
	if l.StopSignal != nil {
		errs = append(errs, v.validateStopSignal(*l.StopSignal, path.Child("stopSignal"))...)
	}
	return errs
}

func (v *validator) validateStopSignal(signal corev1.Signal, path *field.Path) field.ErrorList {
	if v.spec.OS == nil {
		return field.ErrorList{field.Forbidden(path, "may not be set unless spec.os.name is set")}
	}
	if v.isWindows() {
		return supported(path, signal, corev1.SIGTERM, corev1.SIGKILL)
	}
	return nil
}

// handler holds the actions of a probe or a lifecycle hook, of which exactly one must be set.
type handler struct {
	exec  *corev1.ExecAction
	http  *corev1.HTTPGetAction
	tcp   *corev1.TCPSocketAction
	grpc  *corev1.GRPCAction
	sleep *corev1.SleepAction
}

// validateHandler validates a handler. gracePeriod, if not nil, limits the duration of a sleep.
func validateHandler(h handler, gracePeriod *int64, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	found := false
	check := func(name string, set bool, validate func(at *field.Path) field.ErrorList) {
		switch {
		case !set:
		case found:
			errs = append(errs, field.Forbidden(path.Child(name),
				"may not specify more than one handler type"))
		default:
			found = true
			errs = append(errs, validate(path.Child(name))...)
		}
	}
	check("exec", h.exec != nil, func(at *field.Path) field.ErrorList {
		if len(h.exec.Command) == 0 {
			return field.ErrorList{field.Required(at.Child("command"), "")}
		}
		return nil
	})
	check("httpGet", h.http != nil, func(at *field.Path) field.ErrorList {
		return validateHTTPGet(h.http, at)
	})
	check("tcpSocket", h.tcp != nil, func(at *field.Path) field.ErrorList {
		return validatePortOrName(h.tcp.Port, at.Child("port"))
	})
	check("grpc", h.grpc != nil, func(at *field.Path) field.ErrorList {
		return rules.Invalid(at.Child("port"), h.grpc.Port,
			validation.IsValidPortNum(int(h.grpc.Port)))
	})
	check("sleep", h.sleep != nil, func(at *field.Path) field.ErrorList {
		if gracePeriod != nil && (h.sleep.Seconds < 0 || h.sleep.Seconds > *gracePeriod) {
			return field.ErrorList{field.Invalid(at, h.sleep.Seconds,
				fmt.Sprintf("must be between 0 and the grace period of %d seconds", *gracePeriod))}
		}
		return nil
	})
	if !found {
		errs = append(errs, field.Required(path,
			"must specify a handler type"))
	}
	return errs
}

func validateHTTPGet(get *corev1.HTTPGetAction, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if get.Path == "" {
		errs = append(errs, field.Required(path.Child("path"), ""))
	}
	errs = append(errs, validatePortOrName(get.Port, path.Child("port"))...)
	if get.Scheme != corev1.URISchemeHTTP && get.Scheme != corev1.URISchemeHTTPS {
		errs = append(errs, field.NotSupported(path.Child("scheme"), get.Scheme,
			[]corev1.URIScheme{corev1.URISchemeHTTP, corev1.URISchemeHTTPS}))
	}
	for _, header := range get.HTTPHeaders {
		errs = append(errs, rules.Invalid(path.Child("httpHeaders"), header.Name,
			validation.IsHTTPHeaderName(header.Name))...)
	}
	return errs
}

func validatePortOrName(port intstr.IntOrString, path *field.Path) field.ErrorList {
	if port.Type == intstr.String {
		return rules.Invalid(path, port.StrVal, validation.IsValidPortName(port.StrVal))
	}
	return rules.Invalid(path, port.IntVal, validation.IsValidPortNum(int(port.IntVal)))
}
