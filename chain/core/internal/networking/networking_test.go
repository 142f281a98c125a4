package networking

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/kind/kindtest"
)

func backend(name string) networkingv1.IngressBackend {
	return networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{
		Name: name,
		Port: networkingv1.ServiceBackendPort{Number: 80},
	}}
}

func ingress() *networkingv1.Ingress {
	return &networkingv1.Ingress{Spec: networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{
		Host: "*.example.com",
		IngressRuleValue: networkingv1.IngressRuleValue{
			HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{{
				Path: "/", PathType: new(networkingv1.PathTypePrefix), Backend: backend("1s"),
			}}},
		},
	}}}}
}

func TestValidateIngress(t *testing.T) {
	t.Parallel()
	const path = "spec.rules[0].http.paths[0]."
	for _, test := range []struct {
		name   string
		change func(*networkingv1.Ingress, *networkingv1.HTTPIngressPath)
		want   string
	}{
		{"valid", func(*networkingv1.Ingress, *networkingv1.HTTPIngressPath) {}, ""},
		{"wildcard", func(in *networkingv1.Ingress, _ *networkingv1.HTTPIngressPath) {
			in.Spec.Rules[0].Host = "a.*.b"
		}, "spec.rules[0].host Invalid"},
		{"no path type", func(_ *networkingv1.Ingress, p *networkingv1.HTTPIngressPath) {
			p.PathType = nil
		}, path + "pathType Required"},
		{"path type", func(_ *networkingv1.Ingress, p *networkingv1.HTTPIngressPath) {
			p.PathType = new(networkingv1.PathType("Odd"))
		},
			path + "pathType NotSupported"},
		{"path that ends in dots", func(_ *networkingv1.Ingress, p *networkingv1.HTTPIngressPath) {
			p.Path = "/a/.."
		}, path + "path Invalid"},
		{"empty path", func(_ *networkingv1.Ingress, p *networkingv1.HTTPIngressPath) {
			p.Path = ""
		}, path + "path Invalid"},
		{
			"empty path of the controller's",
			func(_ *networkingv1.Ingress, p *networkingv1.HTTPIngressPath) {
				p.Path, p.PathType = "", new(networkingv1.PathTypeImplementationSpecific)
			}, "",
		},
		{"two backends", func(_ *networkingv1.Ingress, p *networkingv1.HTTPIngressPath) {
			p.Backend.Resource = &corev1.TypedLocalObjectReference{Kind: "K", Name: "n"}
		}, path + "backend Invalid"},
		{"resource", func(_ *networkingv1.Ingress, p *networkingv1.HTTPIngressPath) {
			p.Backend = networkingv1.IngressBackend{
				Resource: &corev1.TypedLocalObjectReference{APIGroup: new("A"), Name: "a/b"},
			}
		},
			path + "backend.resource.apiGroup Invalid, " + path + "backend.resource.kind Required, " + path +
				"backend.resource.name Invalid"},
		{"service", func(_ *networkingv1.Ingress, p *networkingv1.HTTPIngressPath) {
			p.Backend.Service = &networkingv1.IngressServiceBackend{
				Port: networkingv1.ServiceBackendPort{Name: "-"},
			}
		}, path + "backend.service.name Required, " + path + "backend.service.port.name Invalid"},
		{"default backend", func(in *networkingv1.Ingress, _ *networkingv1.HTTPIngressPath) {
			in.Spec.DefaultBackend = new(backend("a.b"))
		}, "spec.defaultBackend.service.name Invalid"},
		{"secret", func(in *networkingv1.Ingress, _ *networkingv1.HTTPIngressPath) {
			in.Spec.TLS = []networkingv1.IngressTLS{{SecretName: "A", Hosts: []string{""}}}
		}, "spec.tls[0].hosts[0] Invalid, spec.tls[0].secretName Invalid"},
		{"class", func(in *networkingv1.Ingress, _ *networkingv1.HTTPIngressPath) {
			in.Spec.IngressClassName = new("A")
		}, "spec.ingressClassName Invalid"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			in := ingress()
			test.change(in, &in.Spec.Rules[0].HTTP.Paths[0])
			if got := strings.Join(kindtest.Causes(validateIngressCreate(t.Context(), in)),
				", "); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestIngressUpdateKeepsWhatIsThere(t *testing.T) {
	t.Parallel()
	old := ingress()
	old.Spec.TLS = []networkingv1.IngressTLS{{SecretName: "A"}}
	old.Spec.Rules[0].HTTP.Paths = nil
	if got := strings.Join(kindtest.Causes(validateIngressUpdate(t.Context(), old.DeepCopy(), old)),
		", "); got != "" {
		t.Errorf("an unchanged ingress: %s", got)
	}
	valid := ingress()
	valid.Spec.Rules[0].HTTP.Paths[0].Backend = backend("s")
	if got := strings.Join(kindtest.Causes(validateIngressUpdate(t.Context(), old, valid)),
		", "); got != "spec.rules[0].http.paths Required, spec.tls[0].secretName Invalid" {
		t.Errorf("a valid ingress that becomes invalid: got %q", got)
	}
}

func TestServiceNamesOfIngresses(t *testing.T) {
	t.Parallel()
	strict, relaxed := ingressRules{}, ingressRules{anyServiceName: true}
	for _, in := range []*networkingv1.Ingress{
		ingress(), {Spec: networkingv1.IngressSpec{DefaultBackend: new(backend("1s"))}},
	} {
		got := strict.validate(in)
		if len(got) != 1 || !strings.HasSuffix(got[0].Field, "service.name") {
			t.Errorf("strict: %v", got)
		}
		if got := relaxed.validate(in); len(got) > 0 {
			t.Errorf("relaxed: %v", got)
		}
		if !hasDigitService(in) {
			t.Error("the old ingress does not count")
		}
	}
}

func TestHostsCell(t *testing.T) {
	t.Parallel()
	rules := []networkingv1.IngressRule{{Host: "a"}, {}, {Host: "b"}, {Host: "c"}}
	if got := hosts(rules); got != "a,b,c" {
		t.Errorf("got %q", got)
	}
	if got := hosts(append(rules, networkingv1.IngressRule{})); got != "a,b,c + 2 more..." {
		t.Errorf("with one more rule: got %q", got)
	}
}

func TestValidateNetworkPolicy(t *testing.T) {
	t.Parallel()
	valid := func() *networkingv1.NetworkPolicy {
		return &networkingv1.NetworkPolicy{
			Spec: networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{{
				Ports: []networkingv1.NetworkPolicyPort{{Port: new(intstr.FromInt32(80))}},
				From: []networkingv1.NetworkPolicyPeer{{
					IPBlock: &networkingv1.IPBlock{CIDR: "10.0.0.0/8", Except: []string{"10.1.0.0/16"}},
				}},
			}}},
		}
	}
	const rule = "spec.ingress[0]."
	for _, test := range []struct {
		name   string
		change func(*networkingv1.NetworkPolicyPort, *networkingv1.NetworkPolicyPeer)
		want   string
	}{
		{"valid", func(*networkingv1.NetworkPolicyPort, *networkingv1.NetworkPolicyPeer) {}, ""},
		{"range", func(p *networkingv1.NetworkPolicyPort, _ *networkingv1.NetworkPolicyPeer) {
			p.EndPort = new(int32(79))
		}, rule + "ports[0].endPort Invalid"},
		{
			"range from nowhere",
			func(p *networkingv1.NetworkPolicyPort, _ *networkingv1.NetworkPolicyPeer) {
				p.Port, p.EndPort = nil, new(int32(79))
			}, rule + "ports[0].endPort Invalid",
		},
		{"protocol", func(p *networkingv1.NetworkPolicyPort, _ *networkingv1.NetworkPolicyPeer) {
			p.Protocol = new(corev1.Protocol("ICMP"))
		}, rule + "ports[0].protocol NotSupported"},
		{
			"block beside a selector",
			func(_ *networkingv1.NetworkPolicyPort, p *networkingv1.NetworkPolicyPeer) {
				p.PodSelector = &metav1.LabelSelector{}
			}, rule + "from[0] Forbidden",
		},
		{"no CIDR", func(_ *networkingv1.NetworkPolicyPort, p *networkingv1.NetworkPolicyPeer) {
			p.IPBlock.CIDR = ""
		},
			rule + "from[0].ipBlock.cidr Required"},
		{"host bits", func(_ *networkingv1.NetworkPolicyPort, p *networkingv1.NetworkPolicyPeer) {
			p.IPBlock.CIDR = "10.0.0.1/8"
		},
			rule + "from[0].ipBlock.cidr Invalid"},
		{"exceptions", func(_ *networkingv1.NetworkPolicyPort, p *networkingv1.NetworkPolicyPeer) {
			p.IPBlock.Except = []string{"10.0.0.0/8", "11.0.0.0/16", "x"}
		},
			rule + "from[0].ipBlock.except[0] Invalid, " + rule + "from[0].ipBlock.except[1] Invalid, " +
				rule + "from[0].ipBlock.except[2] Invalid"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := valid()
			test.change(&p.Spec.Ingress[0].Ports[0], &p.Spec.Ingress[0].From[0])
			defaultNetworkPolicy(p)
			if got := strings.Join(kindtest.Causes(policyRules{}.validate(&p.Spec)),
				", "); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if got := strings.Join(kindtest.Causes(validateNetworkPolicyUpdate(t.Context(), p, p)),
				", "); test.name == "host bits" && got != "" {
				t.Errorf("values that the old object has: got %q", got)
			}
		})
	}
}

func TestValidateOthers(t *testing.T) {
	t.Parallel()
	parameters := func(scope, namespace *string) *networkingv1.IngressClass {
		return &networkingv1.IngressClass{Spec: networkingv1.IngressClassSpec{
			Controller: "a.b/c",
			Parameters: &networkingv1.IngressClassParametersReference{
				Kind:      "K",
				Name:      "n",
				Scope:     scope,
				Namespace: namespace,
			},
		}}
	}
	cidrs := func(c ...string) *networkingv1.ServiceCIDR {
		return &networkingv1.ServiceCIDR{Spec: networkingv1.ServiceCIDRSpec{CIDRs: c}}
	}
	address := func(ref *networkingv1.ParentReference) *networkingv1.IPAddress {
		return &networkingv1.IPAddress{Spec: networkingv1.IPAddressSpec{ParentRef: ref}}
	}
	ctx := t.Context()
	for _, test := range []struct {
		name string
		errs field.ErrorList
		want string
	}{
		{"class", validateIngressClass(ctx, parameters(new("Namespace"), new("n"))), ""},
		{
			"class without a scope", validateIngressClass(ctx, parameters(nil, nil)),
			"spec.parameters.scope Required",
		},
		{
			"class of an odd scope", validateIngressClass(ctx, parameters(new("Odd"), nil)),
			"spec.parameters.scope NotSupported",
		},
		{
			"class without a namespace", validateIngressClass(ctx, parameters(new("Namespace"), nil)),
			"spec.parameters.namespace Required",
		},
		{
			"class with a namespace", validateIngressClass(ctx, parameters(new("Cluster"), new("n"))),
			"spec.parameters.namespace Forbidden",
		},
		{"long controller", validateIngressClass(ctx, &networkingv1.IngressClass{
			Spec: networkingv1.IngressClassSpec{Controller: "a.b/" + strings.Repeat("c", 250)},
		}), "spec.controller TooLong"},
		{"no CIDRs", validateServiceCIDR(ctx, cidrs()), "spec.cidrs Required"},
		{"three CIDRs", validateServiceCIDR(ctx, cidrs("a", "b", "c")), "spec.cidrs Invalid"},
		{
			"one family twice", validateServiceCIDR(ctx, cidrs("10.0.0.0/24", "10.0.1.0/24")),
			"spec.cidrs Invalid",
		},
		{
			"CIDR added",
			validateServiceCIDRUpdate(ctx, cidrs("10.0.0.0/24", "fd00::/64"), cidrs("10.0.0.0/24")), "",
		},
		{
			"CIDR removed",
			validateServiceCIDRUpdate(ctx, cidrs("10.0.0.0/24"), cidrs("10.0.0.0/24", "fd00::/64")),
			"spec.cidrs Invalid",
		},
		{"CIDR changed", validateServiceCIDRUpdate(ctx, cidrs("10.0.0.0/25", "fd00::/64"),
			cidrs("10.0.0.0/24", "fd00::/64")), "spec.cidrs[0] Invalid"},
		{"address without a parent", validateIPAddress(ctx, address(nil)), "spec.parentRef Required"},
		{"address with a bad parent", validateIPAddress(ctx,
			address(&networkingv1.ParentReference{Group: "A", Name: "a/b", Namespace: "."})),
			"spec.parentRef.group Invalid, spec.parentRef.name Invalid, " +
				"spec.parentRef.namespace Invalid, spec.parentRef.resource Required"},
		{
			"address with another parent, a bad one",
			validateIPAddressUpdate(ctx, address(&networkingv1.ParentReference{Resource: "r"}),
				address(&networkingv1.ParentReference{Resource: "r", Name: "n"})),
			"spec.parentRef Invalid, spec.parentRef.name Required",
		},
	} {
		if got := strings.Join(kindtest.Causes(test.errs), ", "); got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
	policies := NetworkPolicies()
	none, empty := &networkingv1.NetworkPolicy{}, &networkingv1.NetworkPolicy{
		Spec: networkingv1.NetworkPolicySpec{Egress: []networkingv1.NetworkPolicyEgressRule{}},
	}
	if !policies.SameGeneration(none, none) || policies.SameGeneration(none, empty) {
		t.Error("replacing a nil list by an empty one does not count as a change, " +
			"or no change at all does")
	}
	for name, valid := range map[string]bool{
		"10.0.0.1":  true,
		"fd00::1":   true,
		"FD00::1":   false,
		"010.0.0.1": false,
		"a":         false,
	} {
		if msgs := ipAddressName(name, false); (len(msgs) == 0) != valid {
			t.Errorf("name %s: %v", name, msgs)
		}
	}
}
