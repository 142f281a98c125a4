package networking

import (
	"context"
	"fmt"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"github.com/kinproc/kinproc/chain/core/internal/rules"
	"github.com/kinproc/kinproc/chain/core/internal/rules/addresses"
	"github.com/kinproc/kinproc/chain/features"
	"github.com/kinproc/kinproc/chain/kind"
)

// classAnnotation is the predecessor of the field ingressClassName.
const classAnnotation = "kubernetes.io/ingress.class"

// Ingresses declares ingresses.
func Ingresses() *kind.Kind[*networkingv1.Ingress] {
	return &kind.Kind[*networkingv1.Ingress]{
		Plural:         "ingresses",
		ShortNames:     []string{"ing"},
		Validate:       validateIngressCreate,
		ValidateUpdate: validateIngressUpdate,
		Table: kind.Table[*networkingv1.Ingress]{
			Columns: []kind.Column{
				kind.NameColumn(),
				{
					Name:        "Class",
					Description: "The ingress class, which selects the controller that serves this ingress.",
				},
				{Name: "Hosts", Description: "Hosts that the rules apply to."},
				{Name: "Address", Description: "Addresses of the load balancer."},
				{Name: "Ports", Description: "Ports that the load balancer listens on."},
				kind.AgeColumn(),
			},
			Row: func(in *networkingv1.Ingress) []any {
				class, ports := "<none>", "80"
				if in.Spec.IngressClassName != nil {
					class = *in.Spec.IngressClassName
				}
				if len(in.Spec.TLS) > 0 {
					ports = "80, 443"
				}
				return []any{
					in.Name, class, hosts(in.Spec.Rules), addressCell(in.Status.LoadBalancer.Ingress), ports,
					kind.Age(in),
				}
			},
		},
		Warnings: func(_ context.Context, obj, old *networkingv1.Ingress) []string {
			if _, set := obj.Annotations[classAnnotation]; set && old == nil {
				return []string{
					fmt.Sprintf("metadata.annotations[%s] is deprecated: use spec.ingressClassName instead",
						classAnnotation),
				}
			}
			return nil
		},
		Status: &kind.Status[*networkingv1.Ingress]{
			Validate: validateIngressStatus,
			Warnings: func(_ context.Context, obj, _ *networkingv1.Ingress) []string {
				var warnings []string
				for i, in := range obj.Status.LoadBalancer.Ingress {
					if in.IP != "" {
						path := field.NewPath("status", "loadBalancer", "ingress").Index(i).Child("ip")
						warnings = append(warnings, validation.GetWarningsForIP(path, in.IP)...)
					}
				}
				return warnings
			},
		},
		Generation: true,
		Quirks:     kind.Quirks{StoragePath: "ingress", NameOnUpdate: true},
	}
}

// hosts returns the first three hosts and the number of further rules.
func hosts(rules []networkingv1.IngressRule) string {
	const shown = 3
	var names []string
	for _, r := range rules {
		if len(names) == shown {
			return fmt.Sprintf("%s + %d more...", strings.Join(names, ","), len(rules)-shown)
		}
		if r.Host != "" {
			names = append(names, r.Host)
		}
	}
	if len(names) == 0 {
		return "*"
	}
	return strings.Join(names, ",")
}

func addressCell(ingress []networkingv1.IngressLoadBalancerIngress) string {
	var all []string
	for _, in := range ingress {
		if in.IP != "" {
			all = append(all, in.IP)
		} else if in.Hostname != "" {
			all = append(all, in.Hostname)
		}
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), ",")
}

// ingressRules lists the checks that an update skips because the old object already violates them.
type ingressRules struct {
	anySecretName   bool
	anyWildcardRule bool
	// anyServiceName allows names of services that begin with a digit (KEP-5311).
	anyServiceName bool
}

func validateIngressCreate(_ context.Context, in *networkingv1.Ingress) field.ErrorList {
	r := ingressRules{anyServiceName: features.Enabled(features.RelaxedServiceNameValidation)}
	errs := r.validate(in)
	class, annotated := in.Annotations[classAnnotation]
	if annotated && in.Spec.IngressClassName != nil && class != *in.Spec.IngressClassName {
		errs = append(errs, field.Invalid(field.NewPath("annotations").Child(classAnnotation), class,
			"must match `ingressClassName` when both are specified"))
	}
	return errs
}

func validateIngressUpdate(_ context.Context, in, old *networkingv1.Ingress) field.ErrorList {
	r := ingressRules{
		anyServiceName: features.Enabled(features.RelaxedServiceNameValidation) ||
			hasDigitService(old),
	}
	for _, tls := range old.Spec.TLS {
		r.anySecretName = r.anySecretName ||
			tls.SecretName != "" && len(validation.IsDNS1123Subdomain(tls.SecretName)) > 0
	}
	for _, rule := range old.Spec.Rules {
		// As in kube-apiserver, services whose names begin with a digit count as wrong here.
		r.anyWildcardRule = r.anyWildcardRule ||
			strings.Contains(rule.Host, "*") &&
				len(ingressRules{}.validateHTTPRule(rule.HTTP, nil)) > 0
	}
	return r.validate(in)
}

// hasDigitService reports whether an ingress has a service whose name begins with a digit.
func hasDigitService(in *networkingv1.Ingress) bool {
	digit := func(b *networkingv1.IngressBackend) bool {
		return b != nil && b.Service != nil &&
			len(apivalidation.NameIsDNSLabel(b.Service.Name, false)) == 0 &&
			len(apivalidation.NameIsDNS1035Label(b.Service.Name, false)) > 0
	}
	return digit(in.Spec.DefaultBackend) ||
		slices.ContainsFunc(in.Spec.Rules, func(rule networkingv1.IngressRule) bool {
			return rule.HTTP != nil && slices.ContainsFunc(rule.HTTP.Paths,
				func(p networkingv1.HTTPIngressPath) bool { return digit(&p.Backend) })
		})
}

func (r ingressRules) validate(in *networkingv1.Ingress) field.ErrorList {
	var errs field.ErrorList
	spec, path := in.Spec, field.NewPath("spec")
	if spec.DefaultBackend == nil && len(spec.Rules) == 0 {
		errs = append(errs, field.Invalid(path, spec.Rules,
			"either `defaultBackend` or `rules` must be specified"))
	}
	if spec.DefaultBackend != nil {
		errs = append(errs, r.validateBackend(spec.DefaultBackend, path.Child("defaultBackend"))...)
	}
	for i, rule := range spec.Rules {
		rulePath := path.Child("rules").Index(i)
		if rule.Host != "" && netutils.ParseIPSloppy(rule.Host) != nil {
			errs = append(errs, field.Invalid(rulePath.Child("host"), rule.Host,
				"must be a DNS name, not an IP address"))
		}
		errs = append(errs, validateHost(rule.Host, rulePath.Child("host"))...)
		if !r.anyWildcardRule || !strings.Contains(rule.Host, "*") {
			errs = append(errs, r.validateHTTPRule(rule.HTTP, rulePath.Child("http"))...)
		}
	}
	for i, tls := range spec.TLS {
		tlsPath := path.Child("tls").Index(i)
		for j, host := range tls.Hosts {
			hostPath := tlsPath.Child("hosts").Index(j)
			if host == "" {
				errs = append(errs, field.Invalid(hostPath, host, "must not be empty"))
			}
			errs = append(errs, validateHost(host, hostPath)...)
		}
		if tls.SecretName != "" && !r.anySecretName {
			errs = append(errs, rules.Invalid(tlsPath.Child("secretName"), tls.SecretName,
				validation.IsDNS1123Subdomain(tls.SecretName))...)
		}
	}
	if spec.IngressClassName != nil {
		errs = append(errs, rules.Invalid(path.Child("ingressClassName"), *spec.IngressClassName,
			apivalidation.NameIsDNSSubdomain(*spec.IngressClassName, false))...)
	}
	return errs
}

// validateHost checks a host name. It may be empty, and its first label may be an asterisk.
func validateHost(host string, path *field.Path) field.ErrorList {
	if host == "" {
		return nil
	}
	check := validation.IsDNS1123Subdomain
	if strings.Contains(host, "*") {
		check = validation.IsWildcardDNS1123Subdomain
	}
	return rules.Invalid(path, host, check(host))
}

func (r ingressRules) validateHTTPRule(
	http *networkingv1.HTTPIngressRuleValue, path *field.Path,
) field.ErrorList {
	if http == nil {
		return nil
	}
	var errs field.ErrorList
	if len(http.Paths) == 0 {
		errs = append(errs, field.Required(path.Child("paths"), ""))
	}
	for i := range http.Paths {
		errs = append(errs, r.validateHTTPPath(&http.Paths[i], path.Child("paths").Index(i))...)
	}
	return errs
}

func (r ingressRules) validateHTTPPath(
	p *networkingv1.HTTPIngressPath, path *field.Path,
) field.ErrorList {
	if p.PathType == nil {
		return field.ErrorList{
			field.Required(path.Child("pathType"), "one of Exact, ImplementationSpecific and Prefix"),
		}
	}
	var errs field.ErrorList
	url := path.Child("path")
	absolute := strings.HasPrefix(p.Path, "/")
	switch *p.PathType {
	case networkingv1.PathTypeExact, networkingv1.PathTypePrefix:
		if !absolute {
			errs = append(errs, field.Invalid(url, p.Path, "must be an absolute path"))
		}
		for _, part := range []string{"//", "/./", "/../", "%2f", "%2F"} {
			if strings.Contains(p.Path, part) {
				errs = append(errs, field.Invalid(url, p.Path, "must not contain '"+part+"'"))
			}
		}
		for _, end := range []string{"/..", "/."} {
			if strings.HasSuffix(p.Path, end) {
				errs = append(errs, field.Invalid(url, p.Path, "must not end with "+end))
			}
		}
	case networkingv1.PathTypeImplementationSpecific:
		if p.Path != "" && !absolute {
			errs = append(errs, field.Invalid(url, p.Path, "must be an absolute path"))
		}
	default:
		errs = append(errs, field.NotSupported(path.Child("pathType"), *p.PathType,
			[]networkingv1.PathType{
				networkingv1.PathTypeExact, networkingv1.PathTypeImplementationSpecific,
				networkingv1.PathTypePrefix,
			}))
	}
	return append(errs, r.validateBackend(&p.Backend, path.Child("backend"))...)
}

func (r ingressRules) validateBackend(
	b *networkingv1.IngressBackend, path *field.Path,
) field.ErrorList {
	switch {
	case b.Resource != nil && b.Service != nil:
		return field.ErrorList{field.Invalid(path, "", "may not have both a resource and a service")}
	case b.Resource != nil:
		return validateReference(b.Resource.APIGroup, b.Resource.Kind, b.Resource.Name,
			path.Child("resource"))
	case b.Service != nil:
		return r.validateServiceBackend(b.Service, path)
	}
	return field.ErrorList{field.Invalid(path, "", "resource or service backend is required")}
}

func (r ingressRules) validateServiceBackend(
	s *networkingv1.IngressServiceBackend, path *field.Path,
) field.ErrorList {
	var errs field.ErrorList
	name := path.Child("service", "name")
	if s.Name == "" {
		errs = append(errs, field.Required(name, ""))
	} else {
		valid := apivalidation.NameIsDNS1035Label
		if r.anyServiceName {
			valid = apivalidation.NameIsDNSLabel
		}
		errs = append(errs, rules.Invalid(name, s.Name, valid(s.Name, false))...)
	}
	port := path.Child("service", "port")
	switch {
	case s.Port.Name != "" && s.Port.Number != 0:
		errs = append(errs, field.Invalid(path, "", "cannot set both port name & port number"))
	case s.Port.Name != "":
		errs = append(errs, rules.Invalid(port.Child("name"), s.Port.Name,
			validation.IsValidPortName(s.Port.Name))...)
	case s.Port.Number != 0:
		errs = append(errs, rules.Invalid(port.Child("number"), s.Port.Number,
			validation.IsValidPortNum(int(s.Port.Number)))...)
	default:
		errs = append(errs, field.Required(path, "port name or number is required"))
	}
	return errs
}

func validateIngressStatus(_ context.Context, in, old *networkingv1.Ingress) field.ErrorList {
	var errs field.ErrorList
	oldIPs := sets.New[string]()
	for _, o := range old.Status.LoadBalancer.Ingress {
		oldIPs.Insert(o.IP)
	}
	for i, lb := range in.Status.LoadBalancer.Ingress {
		path := field.NewPath("status", "loadBalancer", "ingress").Index(i)
		errs = append(errs, addresses.LoadBalancerIngress(path, lb.IP, lb.Hostname, oldIPs)...)
	}
	return errs
}
