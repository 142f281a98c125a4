package legacy

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/chain/features"
	"github.com/kinproc/kinproc/chain/kind"
)

// serviceName validates the name of a new service, which could begin only with a letter before
// KEP-5311.
func serviceName(name string, prefix bool) []string {
	if features.Enabled(features.RelaxedServiceNameValidation) {
		return apivalidation.NameIsDNSLabel(name, prefix)
	}
	return apivalidation.NameIsDNS1035Label(name, prefix)
}

// Services declares services. The allocator allocates cluster IPs and node ports; if it is nil,
// services cannot be created or updated. The client, a client of this server, finds the endpoints
// that services/proxy connects to and deletes the Endpoints of a deleted service; if it is nil,
// services/proxy is refused. local allows services/proxy to connect to local addresses.
func Services(
	allocator ServiceAllocator, client kubernetes.Interface, local bool, kubelet Kubelet,
) *kind.Kind[*corev1.Service] {
	storage := serviceStorage{allocator: allocator, client: client}
	return &kind.Kind[*corev1.Service]{
		Plural:        "services",
		ShortNames:    []string{"svc"},
		Categories:    []string{"all"},
		Name:          serviceName,
		Default:       defaultService,
		PrepareUpdate: func(_ context.Context, s, old *corev1.Service) { dropWhatTypeForbids(s, old) },
		Validate: func(_ context.Context, s *corev1.Service) field.ErrorList {
			return validateService(s, nil)
		},
		ValidateUpdate: func(_ context.Context, s, old *corev1.Service) field.ErrorList {
			return validateServiceUpdate(s, old)
		},
		Table: kind.Table[*corev1.Service]{
			Columns: []kind.Column{
				kind.NameColumn(),
				{
					Name:        "Type",
					Description: "How the service is reached: ClusterIP, NodePort, LoadBalancer or ExternalName.",
				},
				{
					Name:        "Cluster-IP",
					Description: "Address of the service inside the cluster; None for a headless service.",
				},
				{Name: "External-IP", Description: "Addresses of the service outside the cluster."},
				{Name: "Port(s)", Description: "Ports of the service, with their node ports."},
				kind.AgeColumn(),
				{Name: "Selector", Priority: 1, Description: "Labels of the pods that back the service."},
			},
			Row: func(s *corev1.Service) []any {
				clusterIP := "<none>"
				if len(s.Spec.ClusterIPs) > 0 {
					clusterIP = s.Spec.ClusterIPs[0]
				}
				return []any{
					s.Name, string(s.Spec.Type), clusterIP, externalIP(s), portCell(s.Spec.Ports), kind.Age(s),
					labels.FormatLabels(s.Spec.Selector),
				}
			},
		},
		Warnings: func(_ context.Context, s, _ *corev1.Service) []string { return warnService(s) },
		Status: &kind.Status[*corev1.Service]{
			Validate: func(_ context.Context, s, old *corev1.Service) field.ErrorList {
				return validateServiceStatus(s, old)
			},
			Warnings: func(_ context.Context, s, _ *corev1.Service) []string { return warnServiceStatus(s) },
		},
		Subresources: []kind.Subresource[*corev1.Service]{{
			Name: "proxy",
			New: func(store *genericregistry.Store) rest.Storage {
				return &serviceProxy{
					services: store, client: client, dialer: proxyDialer{local: local}, kubelet: kubelet,
				}
			},
		}},
		Fields: map[string]func(*corev1.Service) string{
			"spec.clusterIP": func(s *corev1.Service) string { return s.Spec.ClusterIP },
			"spec.type":      func(s *corev1.Service) string { return string(s.Spec.Type) },
		},
		CreateOnUpdate: true,
		Adjust:         storage.adjust,
		Quirks:         kind.Quirks{StoragePath: "services/specs", ReturnDeleted: true},
	}
}

func externalIP(s *corev1.Service) string {
	addresses := s.Spec.ExternalIPs
	switch s.Spec.Type {
	case corev1.ServiceTypeExternalName:
		return s.Spec.ExternalName
	case corev1.ServiceTypeLoadBalancer:
		var balancer []string
		for _, in := range s.Status.LoadBalancer.Ingress {
			if in.IP != "" {
				balancer = append(balancer, in.IP)
			} else if in.Hostname != "" {
				balancer = append(balancer, in.Hostname)
			}
		}
		slices.Sort(balancer)
		addresses = append(slices.Compact(balancer), addresses...)
		if len(addresses) == 0 {
			return "<pending>"
		}
	}
	if len(addresses) == 0 {
		return "<none>"
	}
	return strings.Join(addresses, ",")
}

func portCell(ports []corev1.ServicePort) string {
	if len(ports) == 0 {
		return "<none>"
	}
	var cells []string
	for _, p := range ports {
		if p.NodePort > 0 {
			cells = append(cells, fmt.Sprintf("%d:%d/%s", p.Port, p.NodePort, p.Protocol))
		} else {
			cells = append(cells, fmt.Sprintf("%d/%s", p.Port, p.Protocol))
		}
	}
	return strings.Join(cells, ",")
}

// Predicates that follow from the type of a service.

func hasClusterIP(s *corev1.Service) bool { return s.Spec.Type != corev1.ServiceTypeExternalName }

func isHeadless(s *corev1.Service) bool {
	return len(s.Spec.ClusterIPs) == 1 && s.Spec.ClusterIPs[0] == corev1.ClusterIPNone
}

func isLoadBalancer(s *corev1.Service) bool { return s.Spec.Type == corev1.ServiceTypeLoadBalancer }

func hasNodePorts(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeNodePort || isLoadBalancer(s)
}

// allocatesNodePorts reports whether every port of the service gets a node port.
func allocatesNodePorts(s *corev1.Service) bool {
	allocate := s.Spec.AllocateLoadBalancerNodePorts
	return hasNodePorts(s) && (!isLoadBalancer(s) || allocate == nil || *allocate)
}

func isExternallyAccessible(s *corev1.Service) bool {
	return hasNodePorts(s) || s.Spec.Type == corev1.ServiceTypeClusterIP && len(s.Spec.ExternalIPs) > 0
}

// hasHealthCheck reports whether the service has a health check node port, at which its load
// balancer asks nodes whether they have endpoints of the service.
func hasHealthCheck(s *corev1.Service) bool {
	return isLoadBalancer(s) &&
		s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// defaultAffinitySeconds is the default timeout of ClientIP session affinity, three hours.
const defaultAffinitySeconds = 10800

func defaultService(s *corev1.Service) {
	spec := &s.Spec
	if spec.SessionAffinity == "" {
		spec.SessionAffinity = corev1.ServiceAffinityNone
	}
	switch spec.SessionAffinity {
	case corev1.ServiceAffinityNone:
		spec.SessionAffinityConfig = nil
	case corev1.ServiceAffinityClientIP:
		if c := spec.SessionAffinityConfig; c == nil || c.ClientIP == nil ||
			c.ClientIP.TimeoutSeconds == nil {
			spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{
				ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(int32(defaultAffinitySeconds))},
			}
		}
	}
	if spec.Type == "" {
		spec.Type = corev1.ServiceTypeClusterIP
	}
	for i := range spec.Ports {
		p := &spec.Ports[i]
		if p.Protocol == "" {
			p.Protocol = corev1.ProtocolTCP
		}
		if p.TargetPort == intstr.FromInt32(0) || p.TargetPort == intstr.FromString("") {
			p.TargetPort = intstr.FromInt32(p.Port)
		}
	}
	if spec.ExternalTrafficPolicy == "" && isExternallyAccessible(s) {
		spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster
	}
	if spec.InternalTrafficPolicy == nil &&
		(spec.Type == corev1.ServiceTypeClusterIP || hasNodePorts(s)) {
		spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyCluster)
	}
	if isLoadBalancer(s) {
		if spec.AllocateLoadBalancerNodePorts == nil {
			spec.AllocateLoadBalancerNodePorts = new(true)
		}
		for i := range s.Status.LoadBalancer.Ingress {
			if in := &s.Status.LoadBalancer.Ingress[i]; in.IP != "" && in.IPMode == nil {
				in.IPMode = new(corev1.LoadBalancerIPModeVIP)
			}
		}
	}
}

func warnService(s *corev1.Service) []string {
	var warnings []string
	if _, ok := s.Annotations[corev1.DeprecatedAnnotationTopologyAwareHints]; ok {
		warnings = append(warnings, fmt.Sprintf("metadata.annotations[%s] is deprecated; use %s instead",
			corev1.DeprecatedAnnotationTopologyAwareHints, corev1.AnnotationTopologyMode))
	}
	path := field.NewPath("spec")
	headless := s.Spec.Type == corev1.ServiceTypeClusterIP && s.Spec.ClusterIP == corev1.ClusterIPNone
	if s.Spec.ClusterIP != corev1.ClusterIPNone {
		for i, ip := range s.Spec.ClusterIPs {
			warnings = append(warnings,
				validation.GetWarningsForIP(path.Child("clusterIPs").Index(i), ip)...)
		}
	}
	if headless && s.Spec.LoadBalancerIP != "" {
		warnings = append(warnings, "spec.loadBalancerIP is ignored for a headless service")
	}
	if headless && s.Spec.SessionAffinity != corev1.ServiceAffinityNone {
		warnings = append(warnings, "spec.sessionAffinity is ignored for a headless service")
	}
	for i, ip := range s.Spec.ExternalIPs {
		warnings = append(warnings,
			validation.GetWarningsForIP(path.Child("externalIPs").Index(i), ip)...)
	}
	if len(s.Spec.ExternalIPs) > 0 {
		switch {
		case headless:
			warnings = append(warnings, "spec.externalIPs is ignored for a headless service")
		case s.Spec.Type == corev1.ServiceTypeExternalName:
			warnings = append(warnings, "spec.externalIPs is ignored for a service of type ExternalName")
		default:
			warnings = append(warnings, "spec.externalIPs is deprecated (KEP-5707): clusters may ignore it")
		}
	}
	if s.Spec.LoadBalancerIP != "" {
		warnings = append(warnings, validation.GetWarningsForIP(path.Child("loadBalancerIP"),
			s.Spec.LoadBalancerIP)...)
	}
	for i, cidr := range s.Spec.LoadBalancerSourceRanges {
		warnings = append(warnings,
			validation.GetWarningsForCIDR(path.Child("loadBalancerSourceRanges").Index(i), cidr)...)
	}
	if s.Spec.Type != corev1.ServiceTypeExternalName && s.Spec.ExternalName != "" {
		warnings = append(warnings, "spec.externalName is ignored unless the type is ExternalName")
	}
	if d := s.Spec.TrafficDistribution; d != nil &&
		*d == corev1.ServiceTrafficDistributionPreferClose {
		warnings = append(warnings,
			fmt.Sprintf("spec.trafficDistribution: %s is deprecated; use %s instead",
				corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone))
	}
	return warnings
}

func warnServiceStatus(s *corev1.Service) []string {
	var warnings []string
	for i, in := range s.Status.LoadBalancer.Ingress {
		if in.IP != "" {
			path := field.NewPath("status", "loadBalancer", "ingress").Index(i).Child("ip")
			warnings = append(warnings, validation.GetWarningsForIP(path, in.IP)...)
		}
	}
	return warnings
}

// dropWhatTypeForbids clears the fields that do not apply to the new type or traffic policy of the
// service, if the client left them unchanged. A client that only changes the type expects this.
func dropWhatTypeForbids(s, old *corev1.Service) {
	lost := func(has func(*corev1.Service) bool) bool { return has(old) && !has(s) }
	to, from := &s.Spec, &old.Spec
	if lost(hasClusterIP) {
		if sameClusterIPs(s, old) {
			to.ClusterIP, to.ClusterIPs = "", nil
		}
		if slices.Equal(to.IPFamilies, from.IPFamilies) {
			to.IPFamilies = nil
		}
		if samePointed(to.IPFamilyPolicy, from.IPFamilyPolicy) {
			to.IPFamilyPolicy = nil
		}
	}
	if lost(hasNodePorts) && heldNodePorts(old).IsSuperset(heldNodePorts(s)) {
		for i := range to.Ports {
			to.Ports[i].NodePort = 0
		}
	}
	if lost(hasHealthCheck) && to.HealthCheckNodePort == from.HealthCheckNodePort {
		to.HealthCheckNodePort = 0
	}
	if lost(isLoadBalancer) {
		if samePointed(to.AllocateLoadBalancerNodePorts, from.AllocateLoadBalancerNodePorts) {
			to.AllocateLoadBalancerNodePorts = nil
		}
		if samePointed(to.LoadBalancerClass, from.LoadBalancerClass) {
			to.LoadBalancerClass = nil
		}
	}
	if lost(isExternallyAccessible) && to.ExternalTrafficPolicy == from.ExternalTrafficPolicy {
		to.ExternalTrafficPolicy = ""
	}
	if !isLoadBalancer(s) {
		s.Status.LoadBalancer = corev1.LoadBalancerStatus{}
	}
}

// heldNodePorts returns the node ports that the service specifies, whatever its type.
func heldNodePorts(s *corev1.Service) sets.Set[int32] {
	ports := sets.New[int32]()
	for _, p := range s.Spec.Ports {
		if p.NodePort != 0 {
			ports.Insert(p.NodePort)
		}
	}
	return ports
}

func sameClusterIPs(a, b *corev1.Service) bool {
	return a.Spec.ClusterIP == b.Spec.ClusterIP && slices.Equal(a.Spec.ClusterIPs, b.Spec.ClusterIPs)
}

func samePointed[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }
