package legacy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/kinproc/kinproc/chain/kind/kindtest"
)

func validService(change func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "n"},
		Spec: corev1.ServiceSpec{
			Ports:    []corev1.ServicePort{{Port: 80}},
			Selector: map[string]string{"a": "b"},
		},
	}
	if change != nil {
		change(s)
	}
	defaultService(s)
	return s
}

func asLoadBalancer(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeLoadBalancer }

func TestValidateService(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		change func(*corev1.Service)
		want   string
	}{
		{"valid", nil, ""},
		{"unknown type", func(s *corev1.Service) { s.Spec.Type = "Odd" }, "spec.type NotSupported"},
		{"no name among several ports", func(s *corev1.Service) {
			s.Spec.Ports = []corev1.ServicePort{{Port: 1}, {Port: 2, Name: "x"}}
		}, "spec.ports[0].name Required"},
		{"headless load balancer", func(s *corev1.Service) {
			asLoadBalancer(s)
			s.Spec.ClusterIP, s.Spec.ClusterIPs = "None", []string{"None"}
		}, "spec.clusterIPs[0] Invalid"},
		{"external name with addresses", func(s *corev1.Service) {
			s.Spec.Type, s.Spec.ExternalName = corev1.ServiceTypeExternalName, "a.b."
			s.Spec.ClusterIPs, s.Spec.IPFamilies = []string{"10.0.0.1"},
				[]corev1.IPFamily{corev1.IPv4Protocol}
			s.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicySingleStack)
		}, "spec.clusterIPs Forbidden, spec.ipFamilies Forbidden, spec.ipFamilyPolicy Forbidden"},
		{"dot for a name", func(s *corev1.Service) {
			s.Spec.Type, s.Spec.ExternalName = corev1.ServiceTypeExternalName, "."
		}, "spec.externalName Required"},
		{"topology said twice", func(s *corev1.Service) {
			s.Annotations = map[string]string{
				corev1.AnnotationTopologyMode:                 "Auto",
				corev1.DeprecatedAnnotationTopologyAwareHints: "auto",
			}
		}, "metadata.annotations[" + corev1.AnnotationTopologyMode + "] Invalid"},
		{"selector", func(s *corev1.Service) {
			s.Spec.Selector = map[string]string{"a b": "c"}
		}, "spec.selector Invalid"},
		{"affinity", func(s *corev1.Service) {
			s.Spec.SessionAffinity = "Odd"
		}, "spec.sessionAffinity NotSupported"},
		{"affinity timeout", func(s *corev1.Service) {
			s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
			s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{
				ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(int32(86401))},
			}
		}, "spec.sessionAffinityConfig.clientIP.timeoutSeconds Invalid"},
		{"external traffic policy", func(s *corev1.Service) {
			s.Spec.Type, s.Spec.ExternalTrafficPolicy = corev1.ServiceTypeNodePort, "Odd"
		}, "spec.externalTrafficPolicy NotSupported"},
		{"no health check port", func(s *corev1.Service) {
			asLoadBalancer(s)
			s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		}, "spec.healthCheckNodePort Required"},
		{"useless health check port", func(s *corev1.Service) {
			s.Spec.HealthCheckNodePort = 30000
		}, "spec.healthCheckNodePort Invalid"},
		{"load balancer class", func(s *corev1.Service) {
			asLoadBalancer(s)
			s.Spec.LoadBalancerClass = new("a/b/c")
		}, "spec.loadBalancerClass Invalid"},
		{"source ranges", func(s *corev1.Service) {
			s.Spec.LoadBalancerSourceRanges = []string{" 10.0.0.0/8 ", "10.0.0.1/8"}
		},
			"spec.LoadBalancerSourceRanges Forbidden, spec.LoadBalancerSourceRanges[1] Invalid"},
		{"source ranges annotation", func(s *corev1.Service) {
			asLoadBalancer(s)
			s.Annotations = map[string]string{sourceRangesAnnotation: "10.0.0.0/8, nope"}
		}, "metadata.annotations[" + sourceRangesAnnotation + "] Invalid"},
		{"node ports for nobody", func(s *corev1.Service) {
			s.Spec.AllocateLoadBalancerNodePorts = new(false)
		},
			"spec.allocateLoadBalancerNodePorts Forbidden"},
		{"three addresses", func(s *corev1.Service) {
			s.Spec.ClusterIP, s.Spec.ClusterIPs = "10.0.0.1", []string{"10.0.0.1", "fd00::1", "10.0.0.2"}
		}, "spec.clusterIPs Invalid"},
		{"two addresses of a family", func(s *corev1.Service) {
			s.Spec.ClusterIP, s.Spec.ClusterIPs = "10.0.0.1", []string{"10.0.0.1", "10.0.0.2"}
		}, "spec.clusterIPs Invalid"},
		{"target port name", func(s *corev1.Service) {
			s.Spec.Ports[0].TargetPort = intstr.FromString("a--b")
		}, "spec.ports[0].targetPort Invalid"},
		{"link-local external IP", func(s *corev1.Service) {
			s.Spec.ExternalIPs = []string{"169.254.1.1"}
		}, "spec.externalIPs[0] Invalid"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := strings.Join(kindtest.Causes(validateService(validService(test.change), nil)),
				", "); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestValidateServiceUpdate(t *testing.T) {
	t.Parallel()
	dual := func(s *corev1.Service) {
		s.Spec.ClusterIP, s.Spec.ClusterIPs = "10.0.0.1", []string{"10.0.0.1", "fd00::1"}
		s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
		s.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyRequireDualStack)
	}
	local := func(s *corev1.Service) {
		asLoadBalancer(s)
		s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort =
			corev1.ServiceExternalTrafficPolicyLocal, 30001
	}
	for _, test := range []struct {
		name        string
		old, change func(*corev1.Service)
		want        string
	}{
		{"nothing", dual, func(*corev1.Service) {}, ""},
		{"second address given up", dual, func(s *corev1.Service) {
			s.Spec.ClusterIPs, s.Spec.IPFamilies = s.Spec.ClusterIPs[:1], s.Spec.IPFamilies[:1]
			s.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicySingleStack)
		}, ""},
		{"second address given up without a word", dual, func(s *corev1.Service) {
			s.Spec.ClusterIPs, s.Spec.IPFamilies = s.Spec.ClusterIPs[:1], s.Spec.IPFamilies[:1]
		}, "spec.ipFamilyPolicy Invalid"},
		{"second address changed", dual, func(s *corev1.Service) {
			s.Spec.ClusterIPs = []string{"10.0.0.1", "fd00::2"}
		}, "spec.clusterIPs[1] Invalid"},
		{"first address changed", dual, func(s *corev1.Service) {
			s.Spec.ClusterIP, s.Spec.ClusterIPs = "10.0.0.2", []string{"10.0.0.2", "fd00::1"}
		}, "spec.clusterIPs[0] Invalid"},
		{"families swapped", dual, func(s *corev1.Service) { slices.Reverse(s.Spec.IPFamilies) },
			"spec.clusterIPs[0] Invalid, spec.clusterIPs[1] Invalid, spec.ipFamilies[0] Invalid"},
		{"made headless, with the other family", dual, func(s *corev1.Service) {
			s.Spec.ClusterIP, s.Spec.ClusterIPs = "None", []string{"None"}
			s.Spec.IPFamilies = s.Spec.IPFamilies[1:]
		}, "spec.clusterIPs[0] Invalid, spec.ipFamilyPolicy Invalid"},
		{"source ranges of old", func(s *corev1.Service) {
			asLoadBalancer(s)
			s.Annotations = map[string]string{sourceRangesAnnotation: "nope"}
		}, func(s *corev1.Service) { s.Labels = map[string]string{"a": "b"} }, ""},
		{"to an external name", dual, func(s *corev1.Service) {
			s.Spec = corev1.ServiceSpec{
				Type:            corev1.ServiceTypeExternalName,
				ExternalName:    "a",
				SessionAffinity: corev1.ServiceAffinityNone,
			}
		}, ""},
		{"health check port", local, func(s *corev1.Service) {
			s.Spec.HealthCheckNodePort = 30002
		}, "spec.healthCheckNodePort Forbidden"},
		{"load balancer class", local, func(s *corev1.Service) {
			s.Spec.LoadBalancerClass = new("a.b/c")
		}, "spec.loadBalancerClass Invalid"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			old := validService(test.old)
			s := old.DeepCopy()
			test.change(s)
			if got := strings.Join(kindtest.Causes(validateServiceUpdate(s, old)), ", "); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestChooseFamilies(t *testing.T) {
	t.Parallel()
	v4, v6 := corev1.IPv4Protocol, corev1.IPv6Protocol
	both := []corev1.IPFamily{v4, v6}
	policy := func(p corev1.IPFamilyPolicy) func(*corev1.Service) {
		return func(s *corev1.Service) { s.Spec.IPFamilyPolicy = &p }
	}
	for _, test := range []struct {
		name    string
		cluster []corev1.IPFamily
		change  func(*corev1.Service)
		want    string // families and policy, or the errors
	}{
		{"default", both, nil, "[IPv4] SingleStack"},
		{"default of an IPv6 cluster", []corev1.IPFamily{v6}, nil, "[IPv6] SingleStack"},
		{
			"prefer dual, cluster has one", both[:1], policy(corev1.IPFamilyPolicyPreferDualStack),
			"[IPv4] PreferDualStack",
		},
		{
			"prefer dual, cluster has both", both, policy(corev1.IPFamilyPolicyPreferDualStack),
			"[IPv4 IPv6] PreferDualStack",
		},
		{
			"require dual, cluster has one", both[:1], policy(corev1.IPFamilyPolicyRequireDualStack),
			"spec.ipFamilyPolicy Invalid",
		},
		{"the other family first", both, func(s *corev1.Service) {
			s.Spec.IPFamilies, s.Spec.IPFamilyPolicy = both[1:], new(corev1.IPFamilyPolicyRequireDualStack)
		}, "[IPv6 IPv4] RequireDualStack"},
		{"family from address", both, func(s *corev1.Service) {
			s.Spec.ClusterIP, s.Spec.ClusterIPs = "fd00::1", []string{"fd00::1"}
		}, "[IPv6] SingleStack"},
		{"two families without a policy", both, func(s *corev1.Service) {
			s.Spec.IPFamilies = both
		}, "spec.ipFamilyPolicy Invalid"},
		{"family that the cluster lacks", both[:1], func(s *corev1.Service) {
			s.Spec.IPFamilies = both[1:]
		}, "spec.ipFamilies[0] Invalid"},
		{"headless with selector", both[:1], func(s *corev1.Service) {
			s.Spec.ClusterIP, s.Spec.ClusterIPs = "None", []string{"None"}
		}, "[IPv4] SingleStack"},
		{"headless without selector", both[:1], func(s *corev1.Service) {
			s.Spec.ClusterIP, s.Spec.ClusterIPs, s.Spec.Selector = "None", []string{"None"}, nil
		}, "[IPv4 IPv6] RequireDualStack"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := validService(test.change)
			got := strings.Join(kindtest.Causes(chooseFamilies(s, nil, test.cluster)), ", ")
			if got == "" {
				got = fmt.Sprintf("%v %s", s.Spec.IPFamilies, *s.Spec.IPFamilyPolicy)
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestProxyToNoEndpoints(t *testing.T) {
	t.Parallel()
	s := validService(nil)
	p := &serviceProxy{client: fake.NewClientset()}
	if _, err := p.endpoints(t.Context(), s, ""); !apierrors.IsNotFound(err) {
		t.Errorf("without endpoints: %v", err)
	}
	p.client = fake.NewClientset(&corev1.Endpoints{ObjectMeta: s.ObjectMeta})
	if addresses, err := p.endpoints(t.Context(), s, ""); err != nil || len(addresses) > 0 {
		t.Errorf("with empty endpoints: %v, %v", addresses, err)
	}
}

func TestAdoptAllocated(t *testing.T) {
	t.Parallel()
	old := validService(func(s *corev1.Service) {
		asLoadBalancer(s)
		s.Spec.ClusterIP, s.Spec.ClusterIPs, s.Spec.Ports[0].NodePort = "10.0.0.1",
			[]string{"10.0.0.1"}, 30001
	})
	s := validService(func(s *corev1.Service) {
		asLoadBalancer(s)
		s.Spec.ClusterIP, s.Spec.AllocateLoadBalancerNodePorts = "10.0.0.2", new(false)
	})
	adoptAllocated(s, old)
	syncClusterIPs(s, old)
	if got := fmt.Sprint(s.Spec.ClusterIPs, s.Spec.Ports[0].NodePort); got != "[10.0.0.2] 0" {
		t.Errorf("with another clusterIP and no node ports: %s", got)
	}
	name := &corev1.Service{Spec: corev1.ServiceSpec{
		Type:                  corev1.ServiceTypeExternalName,
		ClusterIP:             "a",
		InternalTrafficPolicy: new(corev1.ServiceInternalTrafficPolicyLocal),
	}}
	completeStored(name, nil)
	if name.Spec.InternalTrafficPolicy != nil || !slices.Equal(name.Spec.ClusterIPs, []string{"a"}) ||
		name.Spec.IPFamilies != nil {
		t.Errorf("an ExternalName service as it is read: %+v", name.Spec)
	}
}

func TestDropWhatTypeForbids(t *testing.T) {
	t.Parallel()
	old := validService(func(s *corev1.Service) {
		asLoadBalancer(s)
		s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort =
			corev1.ServiceExternalTrafficPolicyLocal, 30001
		s.Spec.ClusterIP, s.Spec.ClusterIPs = "10.0.0.1", []string{"10.0.0.1"}
		s.Spec.IPFamilies, s.Spec.IPFamilyPolicy = []corev1.IPFamily{corev1.IPv4Protocol},
			new(corev1.IPFamilyPolicySingleStack)
		s.Spec.Ports[0].NodePort = 30002
	})
	for _, to := range []corev1.ServiceType{
		corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeExternalName,
	} {
		s := old.DeepCopy()
		s.Spec.Type, s.Spec.ExternalName = to, "a.b"
		dropWhatTypeForbids(s, old)
		if got := strings.Join(kindtest.Causes(validateServiceUpdate(s, old)), ", "); got != "" {
			t.Errorf("to %s: %s", to, got)
		}
	}
	fewer := old.DeepCopy()
	fewer.Spec.Ports = append(fewer.Spec.Ports, corev1.ServicePort{
		Name:     "b",
		Port:     81,
		NodePort: 30004,
	})
	fewer.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}
	s := fewer.DeepCopy()
	s.Spec.Type, s.Spec.Ports = corev1.ServiceTypeClusterIP, s.Spec.Ports[:1]
	dropWhatTypeForbids(s, fewer)
	if s.Spec.Ports[0].NodePort != 0 || s.Status.LoadBalancer.Ingress != nil {
		t.Errorf("fields left of a load balancer that lost a port: %v, %v", s.Spec.Ports, s.Status)
	}
	changed := old.DeepCopy()
	changed.Spec.Type, changed.Spec.Ports[0].NodePort = corev1.ServiceTypeClusterIP, 30003
	dropWhatTypeForbids(changed, old)
	if got := strings.Join(kindtest.Causes(validateServiceUpdate(changed, old)), ", "); got !=
		"spec.ports[0].nodePort Forbidden" {
		t.Errorf("a node port that the client changed: %q", got)
	}
}

func TestValidateEndpoints(t *testing.T) {
	t.Parallel()
	valid := func() *corev1.Endpoints {
		return &corev1.Endpoints{Subsets: []corev1.EndpointSubset{{
			Addresses: []corev1.EndpointAddress{{IP: "10.0.0.1"}},
			Ports:     []corev1.EndpointPort{{Port: 80, Protocol: corev1.ProtocolTCP}},
		}}}
	}
	for _, test := range []struct {
		name   string
		change func(*corev1.EndpointSubset)
		want   string
	}{
		{"valid", func(*corev1.EndpointSubset) {}, ""},
		{"loopback", func(s *corev1.EndpointSubset) {
			s.Addresses[0].IP = "127.0.0.1"
		}, "subsets[0].addresses[0].ip Invalid"},
		{"leading zero", func(s *corev1.EndpointSubset) {
			s.Addresses[0].IP = "010.0.0.1"
		}, "subsets[0].addresses[0].ip Invalid"},
		{"host name", func(s *corev1.EndpointSubset) {
			s.Addresses[0].Hostname = "a.b"
		}, "subsets[0].addresses[0].hostname Invalid"},
		{"node name", func(s *corev1.EndpointSubset) {
			s.Addresses[0].NodeName = new("A")
		}, "subsets[0].addresses[0].nodeName Invalid"},
		{"names of several ports", func(s *corev1.EndpointSubset) {
			s.Ports = append(s.Ports, corev1.EndpointPort{Port: 81, Name: "A", Protocol: "ICMP"})
		}, "subsets[0].ports[0].name Required, subsets[0].ports[1].name Invalid, " +
			"subsets[0].ports[1].protocol NotSupported"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			e := valid()
			test.change(&e.Subsets[0])
			if got := strings.Join(kindtest.Causes(validateEndpoints(e, nil)), ", "); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if test.name == "leading zero" {
				if got := strings.Join(kindtest.Causes(validateEndpoints(e, e)), ", "); got != "" {
					t.Errorf("an address that the old object has: %q", got)
				}
			}
		})
	}
}

func TestEndpointsCell(t *testing.T) {
	t.Parallel()
	e := &corev1.Endpoints{}
	if got := formatEndpoints(e); got != "<none>" {
		t.Errorf("no subsets: %q", got)
	}
	e.Subsets = []corev1.EndpointSubset{{
		NotReadyAddresses: []corev1.EndpointAddress{{IP: "10.0.0.1"}},
	}}
	if got := formatEndpoints(e); got != "" {
		t.Errorf("nothing ready: %q", got)
	}
}
