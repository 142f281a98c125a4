package legacy

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/kinproc/kinproc/chain/core/internal/rules"
	"github.com/kinproc/kinproc/chain/core/internal/rules/addresses"
)

const (
	maxAffinitySeconds = 86400
	// sourceRangesAnnotation is the predecessor of the loadBalancerSourceRanges field.
	sourceRangesAnnotation = "service.beta.kubernetes.io/load-balancer-source-ranges"
)

// validateService validates a service; old is nil for a new service.
func validateService(s, old *corev1.Service) field.ErrorList {
	path := field.NewPath("spec")
	errs := append(validateTopologyAnnotations(s.Annotations), validateType(s, path)...)
	errs = append(errs, validateServicePorts(s, path)...)
	if s.Spec.Selector != nil {
		errs = append(errs, metavalidation.ValidateLabels(s.Spec.Selector, path.Child("selector"))...)
	}
	errs = append(errs, validateAffinity(&s.Spec, path)...)
	oldIPs := sets.New[string]()
	if old != nil {
		oldIPs.Insert(old.Spec.ExternalIPs...)
	}
	for i, ip := range s.Spec.ExternalIPs {
		path := path.Child("externalIPs").Index(i)
		bad := addresses.IP(path, ip, oldIPs)
		if len(bad) == 0 {
			bad = addresses.RoutableIP(path, ip)
		}
		errs = append(errs, bad...)
	}
	errs = append(errs, validateLoadBalancer(s, old, path)...)
	errs = append(errs, validateTraffic(s, path)...)
	return append(errs, validateClusterIPs(s, old)...)
}

// validateTopologyAnnotations checks that the annotation and its predecessor agree.
func validateTopologyAnnotations(annotations map[string]string) field.ErrorList {
	mode, set := annotations[corev1.AnnotationTopologyMode]
	hints, deprecated := annotations[corev1.DeprecatedAnnotationTopologyAwareHints]
	if !set || !deprecated || mode == hints {
		return nil
	}
	return field.ErrorList{
		field.Invalid(field.NewPath("metadata", "annotations").Key(corev1.AnnotationTopologyMode), mode,
			"must match "+corev1.DeprecatedAnnotationTopologyAwareHints+" if both are set"),
	}
}

func validateType(s *corev1.Service, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch s.Spec.Type {
	case corev1.ServiceTypeClusterIP:
	case corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer:
		if isHeadless(s) {
			errs = append(errs, field.Invalid(path.Child("clusterIPs").Index(0), corev1.ClusterIPNone,
				"may only be used for services of type ClusterIP"))
		}
	case corev1.ServiceTypeExternalName:
		if len(s.Spec.ClusterIPs) > 0 {
			errs = append(errs, field.Forbidden(path.Child("clusterIPs"),
				"may not be set for services of type ExternalName"))
		}
		if len(s.Spec.IPFamilies) > 0 {
			errs = append(errs, field.Forbidden(path.Child("ipFamilies"),
				"may not be set for services of type ExternalName"))
		}
		if s.Spec.IPFamilyPolicy != nil {
			errs = append(errs, field.Forbidden(path.Child("ipFamilyPolicy"),
				"may not be set for services of type ExternalName"))
		}
		// A trailing dot makes the name absolute for resolvers.
		if name := strings.TrimSuffix(s.Spec.ExternalName, "."); name == "" {
			errs = append(errs, field.Required(path.Child("externalName"),
				"must be set for services of type ExternalName"))
		} else {
			errs = append(errs, rules.Invalid(path.Child("externalName"), name,
				validation.IsDNS1123Subdomain(name))...)
		}
	default:
		errs = append(errs, field.NotSupported(path.Child("type"), s.Spec.Type, []corev1.ServiceType{
			corev1.ServiceTypeClusterIP, corev1.ServiceTypeExternalName, corev1.ServiceTypeLoadBalancer,
			corev1.ServiceTypeNodePort,
		}))
	}
	return errs
}

func validateServicePorts(s *corev1.Service, path *field.Path) field.ErrorList {
	type portKey struct {
		protocol corev1.Protocol
		number   int32
	}
	var errs field.ErrorList
	path = path.Child("ports")
	if len(s.Spec.Ports) == 0 && !isHeadless(s) && s.Spec.Type != corev1.ServiceTypeExternalName {
		errs = append(errs, field.Required(path, ""))
	}
	names, ports, nodePorts := sets.New[string](), sets.New[portKey](), sets.New[portKey]()
	for i, p := range s.Spec.Ports {
		path := path.Index(i)
		if p.Name != "" {
			errs = append(errs, rules.Invalid(path.Child("name"), p.Name,
				validation.IsDNS1123Label(p.Name))...)
			if names.Has(p.Name) {
				errs = append(errs, field.Duplicate(path.Child("name"), p.Name))
			}
			names.Insert(p.Name)
		} else if len(s.Spec.Ports) > 1 {
			errs = append(errs, field.Required(path.Child("name"),
				"must be set if the service has more than one port"))
		}
		errs = append(errs, validateServicePort(&p, path)...)
		if p.NodePort != 0 && s.Spec.Type == corev1.ServiceTypeClusterIP {
			errs = append(errs, field.Forbidden(path.Child("nodePort"),
				"may not be set for services of type ClusterIP"))
		}
		if key := (portKey{p.Protocol, p.Port}); ports.Has(key) {
			errs = append(errs, field.Duplicate(path, p))
		} else {
			ports.Insert(key)
		}
		if p.NodePort != 0 {
			key := portKey{p.Protocol, p.NodePort}
			if nodePorts.Has(key) {
				errs = append(errs, field.Duplicate(path.Child("nodePort"), p.NodePort))
			}
			nodePorts.Insert(key)
		}
	}
	return errs
}

func validateServicePort(p *corev1.ServicePort, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	errs = append(errs, rules.Invalid(path.Child("port"), p.Port,
		validation.IsValidPortNum(int(p.Port)))...)
	if p.Protocol == "" {
		errs = append(errs, field.Required(path.Child("protocol"), ""))
	} else {
		errs = append(errs, addresses.Protocol(path.Child("protocol"), p.Protocol)...)
	}
	if p.TargetPort.Type == intstr.String {
		errs = append(errs, rules.Invalid(path.Child("targetPort"), p.TargetPort.StrVal,
			validation.IsValidPortName(p.TargetPort.StrVal))...)
	} else {
		errs = append(errs, rules.Invalid(path.Child("targetPort"), p.TargetPort.IntValue(),
			validation.IsValidPortNum(p.TargetPort.IntValue()))...)
	}
	if p.AppProtocol != nil {
		errs = append(errs, rules.Invalid(path.Child("appProtocol"), *p.AppProtocol,
			validation.IsQualifiedName(*p.AppProtocol))...)
	}
	return errs
}

func validateAffinity(spec *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	config, configPath := spec.SessionAffinityConfig, path.Child("sessionAffinityConfig")
	switch spec.SessionAffinity {
	case corev1.ServiceAffinityNone:
		if config != nil {
			return field.ErrorList{field.Forbidden(configPath, "may not be set if sessionAffinity is None")}
		}
		return nil
	case corev1.ServiceAffinityClientIP:
	case "":
		return field.ErrorList{field.Required(path.Child("sessionAffinity"), "")}
	default:
		return field.ErrorList{field.NotSupported(path.Child("sessionAffinity"), spec.SessionAffinity,
			[]corev1.ServiceAffinity{corev1.ServiceAffinityClientIP, corev1.ServiceAffinityNone})}
	}
	seconds := configPath.Child("clientIP", "timeoutSeconds")
	switch {
	case config == nil:
		return field.ErrorList{field.Required(configPath, "must be set if sessionAffinity is ClientIP")}
	case config.ClientIP == nil:
		return field.ErrorList{
			field.Required(configPath.Child("clientIP"), "must be set if sessionAffinity is ClientIP"),
		}
	case config.ClientIP.TimeoutSeconds == nil:
		return field.ErrorList{field.Required(seconds, "must be set if sessionAffinity is ClientIP")}
	}
	return rules.Invalid(seconds, *config.ClientIP.TimeoutSeconds,
		validation.IsInRange(int(*config.ClientIP.TimeoutSeconds), 1, maxAffinitySeconds))
}

const (
	onlyLoadBalancer = "may only be used when `type` is 'LoadBalancer'"
	onceSet          = "may not change once set"
)

func validateLoadBalancer(s, old *corev1.Service, path *field.Path) field.ErrorList {
	errs := validateSourceRanges(s, old, path)
	allocate := path.Child("allocateLoadBalancerNodePorts")
	class := path.Child("loadBalancerClass")
	if !isLoadBalancer(s) {
		if s.Spec.AllocateLoadBalancerNodePorts != nil {
			errs = append(errs, field.Forbidden(allocate, onlyLoadBalancer))
		}
		if s.Spec.LoadBalancerClass != nil {
			errs = append(errs, field.Forbidden(class, onlyLoadBalancer))
		}
		return errs
	}
	if s.Spec.AllocateLoadBalancerNodePorts == nil {
		errs = append(errs, field.Required(allocate, ""))
	}
	if old != nil && isLoadBalancer(old) {
		if !ptr.Equal(s.Spec.LoadBalancerClass, old.Spec.LoadBalancerClass) {
			errs = append(errs, field.Invalid(class, s.Spec.LoadBalancerClass, onceSet))
		}
	}
	if s.Spec.LoadBalancerClass != nil {
		errs = append(errs, rules.Invalid(class, *s.Spec.LoadBalancerClass,
			validation.IsQualifiedName(*s.Spec.LoadBalancerClass))...)
	}
	return errs
}

// validateSourceRanges validates the field or, if it is empty, the annotation. The ranges in both
// may be padded with spaces, as was always allowed in the annotation.
func validateSourceRanges(s, old *corev1.Service, path *field.Path) field.ErrorList {
	oldRanges := sets.New[string]()
	if old != nil {
		for _, r := range old.Spec.LoadBalancerSourceRanges {
			oldRanges.Insert(strings.TrimSpace(r))
		}
	}
	var errs field.ErrorList
	if ranges := s.Spec.LoadBalancerSourceRanges; len(ranges) > 0 {
		// kube-apiserver spells the field like this in its errors.
		path = path.Child("LoadBalancerSourceRanges")
		if !isLoadBalancer(s) {
			errs = append(errs, field.Forbidden(path, onlyLoadBalancer))
		}
		for i, r := range ranges {
			errs = append(errs, addresses.CIDR(path.Index(i), strings.TrimSpace(r), oldRanges)...)
		}
		return errs
	}
	if value, set := s.Annotations[sourceRangesAnnotation]; set {
		path = field.NewPath("metadata", "annotations").Key(sourceRangesAnnotation)
		if !isLoadBalancer(s) {
			errs = append(errs, field.Forbidden(path, onlyLoadBalancer))
		}
		unchanged := old != nil && old.Annotations[sourceRangesAnnotation] == value
		if strings.TrimSpace(value) == "" || unchanged {
			return errs
		}
		for r := range strings.SplitSeq(value, ",") {
			errs = append(errs, addresses.CIDR(path, strings.TrimSpace(r), nil)...)
		}
	}
	return errs
}

func validateTraffic(s *corev1.Service, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	external, check := path.Child("externalTrafficPolicy"), path.Child("healthCheckNodePort")
	switch policy := s.Spec.ExternalTrafficPolicy; {
	case !isExternallyAccessible(s):
		if policy != "" {
			errs = append(errs, field.Invalid(external, policy,
				"may only be set for externally-accessible services"))
		}
	case policy == "":
		errs = append(errs, field.Required(external, ""))
	case policy != corev1.ServiceExternalTrafficPolicyCluster &&
		policy != corev1.ServiceExternalTrafficPolicyLocal:
		errs = append(errs, field.NotSupported(external, policy, []corev1.ServiceExternalTrafficPolicy{
			corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal,
		}))
	}
	switch port := s.Spec.HealthCheckNodePort; {
	case !hasHealthCheck(s):
		if port != 0 {
			errs = append(errs, field.Invalid(check, port,
				"may only be set for services of type LoadBalancer with externalTrafficPolicy Local"))
		}
	case port == 0:
		errs = append(errs, field.Required(check, ""))
	default:
		errs = append(errs, rules.Invalid(check, port, validation.IsValidPortNum(int(port)))...)
	}
	internal := path.Child("internalTrafficPolicy")
	switch policy := s.Spec.InternalTrafficPolicy; {
	case policy == nil:
		if s.Spec.Type == corev1.ServiceTypeClusterIP || hasNodePorts(s) {
			errs = append(errs, field.Required(internal, ""))
		}
	case *policy != corev1.ServiceInternalTrafficPolicyCluster &&
		*policy != corev1.ServiceInternalTrafficPolicyLocal:
		errs = append(errs, field.NotSupported(internal, *policy, []corev1.ServiceInternalTrafficPolicy{
			corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyLocal,
		}))
	}
	known := []string{
		corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone,
		corev1.ServiceTrafficDistributionPreferSameNode,
	}
	if d := s.Spec.TrafficDistribution; d != nil && !slices.Contains(known, *d) {
		errs = append(errs, field.NotSupported(path.Child("trafficDistribution"), *d, known))
	}
	return errs
}

func validateServiceUpdate(s, old *corev1.Service) field.ErrorList {
	errs := append(validateClusterIPsUpdate(s, old), validateFamiliesUpdate(s, old)...)
	if hasHealthCheck(s) && hasHealthCheck(old) &&
		s.Spec.HealthCheckNodePort != old.Spec.HealthCheckNodePort {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "healthCheckNodePort"),
			apivalidation.FieldImmutableErrorMsg))
	}
	return append(errs, validateService(s, old)...)
}

// validateClusterIPsUpdate checks that the first address does not change. The second may be added,
// or removed if the policy becomes SingleStack. ExternalName services have no addresses, so a
// change from or to that type adds or removes both.
func validateClusterIPsUpdate(s, old *corev1.Service) field.ErrorList {
	if !hasClusterIP(s) || !hasClusterIP(old) || isHeadless(s) && isHeadless(old) {
		return nil
	}
	var errs field.ErrorList
	path, ips, oldIPs := field.NewPath("spec", "clusterIPs"), s.Spec.ClusterIPs, old.Spec.ClusterIPs
	if len(ips) == 0 && len(oldIPs) > 0 {
		errs = append(errs, field.Invalid(path.Index(0), ips, "must not be removed"))
	}
	for i := range min(len(ips), len(oldIPs)) {
		if ips[i] != oldIPs[i] && (i == 0 || len(ips) == len(oldIPs)) {
			errs = append(errs, field.Invalid(path.Index(i), ips, onceSet))
		}
	}
	if len(ips) == 1 && len(oldIPs) > 1 {
		errs = append(errs, requireSingleStack(s)...)
	}
	return errs
}

// validateFamiliesUpdate does the same for families. Like kube-apiserver, it reports changes at the
// first family.
func validateFamiliesUpdate(s, old *corev1.Service) field.ErrorList {
	if !hasClusterIP(s) || !hasClusterIP(old) || isHeadless(s) || isHeadless(old) {
		return nil
	}
	first, families, oldFamilies := field.NewPath("spec", "ipFamilies").Index(0),
		s.Spec.IPFamilies, old.Spec.IPFamilies
	common := min(len(families), len(oldFamilies))
	if len(families) != len(oldFamilies) {
		common = min(common, 1)
	}
	var errs field.ErrorList
	if !slices.Equal(families[:common], oldFamilies[:common]) {
		errs = append(errs, field.Invalid(first, families, onceSet))
	}
	if len(families) < len(oldFamilies) {
		if len(s.Spec.ClusterIPs) == 0 {
			errs = append(errs, field.Invalid(first, families, "must not be removed"))
		}
		if len(families) == 1 {
			errs = append(errs, requireSingleStack(s)...)
		}
	}
	return errs
}

func requireSingleStack(s *corev1.Service) field.ErrorList {
	if p := s.Spec.IPFamilyPolicy; p != nil && *p == corev1.IPFamilyPolicySingleStack {
		return nil
	}
	return field.ErrorList{
		field.Invalid(field.NewPath("spec", "ipFamilyPolicy"), s.Spec.IPFamilyPolicy,
			"must be SingleStack to remove the second IP family"),
	}
}

func validateServiceStatus(s, old *corev1.Service) field.ErrorList {
	path := field.NewPath("status", "loadBalancer", "ingress")
	ingress := s.Status.LoadBalancer.Ingress
	if !isLoadBalancer(s) && len(ingress) > 0 {
		return field.ErrorList{
			field.Forbidden(path, "may only be used when `spec.type` is 'LoadBalancer'"),
		}
	}
	oldIPs := sets.New[string]()
	for _, in := range old.Status.LoadBalancer.Ingress {
		oldIPs.Insert(in.IP)
	}
	var errs field.ErrorList
	for i, in := range ingress {
		path := path.Index(i)
		errs = append(errs, addresses.LoadBalancerIngress(path, in.IP, in.Hostname, oldIPs)...)
		mode := path.Child("ipMode")
		switch {
		case in.IP == "":
			if in.IPMode != nil {
				errs = append(errs, field.Forbidden(mode, "may not be set if ip is not set"))
			}
		case in.IPMode == nil:
			errs = append(errs, field.Required(mode, ""))
		case *in.IPMode != corev1.LoadBalancerIPModeVIP && *in.IPMode != corev1.LoadBalancerIPModeProxy:
			errs = append(errs, field.NotSupported(mode, *in.IPMode,
				[]corev1.LoadBalancerIPMode{corev1.LoadBalancerIPModeProxy, corev1.LoadBalancerIPModeVIP}))
		}
	}
	return errs
}
