package discovery

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/kinproc/kinproc/chain/kind/kindtest"
)

func slice() *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}}},
		Ports:       []discoveryv1.EndpointPort{{Port: new(int32(80))}},
	}
}

func TestValidateEndpointSlice(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		change func(*discoveryv1.EndpointSlice, *discoveryv1.Endpoint)
		want   string
	}{
		{"valid", func(*discoveryv1.EndpointSlice, *discoveryv1.Endpoint) {}, ""},
		{"no type", func(s *discoveryv1.EndpointSlice, _ *discoveryv1.Endpoint) {
			s.AddressType = ""
		}, "addressType Required"},
		{"loopback", func(_ *discoveryv1.EndpointSlice, e *discoveryv1.Endpoint) {
			e.Addresses[0] = "127.0.0.1"
		}, "endpoints[0].addresses[0] Invalid"},
		{"loopback of a service", func(s *discoveryv1.EndpointSlice, e *discoveryv1.Endpoint) {
			s.Labels, e.Addresses[0] = map[string]string{discoveryv1.LabelServiceName: "s"}, "127.0.0.1"
		}, ""},
		{
			"loopback of a service, other family",
			func(s *discoveryv1.EndpointSlice, e *discoveryv1.Endpoint) {
				s.Labels, e.Addresses[0] = map[string]string{discoveryv1.LabelServiceName: "s"}, "::1"
			}, "endpoints[0].addresses Invalid",
		},
		{"link-local address of a service", func(s *discoveryv1.EndpointSlice, e *discoveryv1.Endpoint) {
			s.Labels, e.Addresses[0] = map[string]string{discoveryv1.LabelServiceName: "s"}, "169.254.0.1"
		}, "endpoints[0].addresses[0] Invalid"},
		{"family", func(_ *discoveryv1.EndpointSlice, e *discoveryv1.Endpoint) {
			e.Addresses[0] = "fd00::1"
		}, "endpoints[0].addresses Invalid"},
		{"domain", func(s *discoveryv1.EndpointSlice, e *discoveryv1.Endpoint) {
			s.AddressType, e.Addresses[0] = discoveryv1.AddressTypeFQDN, "nodots"
		}, "endpoints[0].addresses[0] Invalid"},
		{"too many addresses", func(_ *discoveryv1.EndpointSlice, e *discoveryv1.Endpoint) {
			e.Addresses = slices.Repeat(e.Addresses, 101)
		}, "endpoints[0].addresses TooMany"},
		{"too many endpoints", func(s *discoveryv1.EndpointSlice, e *discoveryv1.Endpoint) {
			s.Endpoints = slices.Repeat(s.Endpoints, 1001)
		}, "endpoints TooMany"},
		{"host name", func(_ *discoveryv1.EndpointSlice, e *discoveryv1.Endpoint) {
			e.Hostname = new("a.b")
		}, "endpoints[0].hostname Invalid"},
		{"zone hints", func(_ *discoveryv1.EndpointSlice, e *discoveryv1.Endpoint) {
			e.Hints = &discoveryv1.EndpointHints{
				ForZones: []discoveryv1.ForZone{{Name: "a"}, {Name: "a"}, {Name: "-"}},
			}
		}, "endpoints[0].hints.forZones[1].name Duplicate, endpoints[0].hints.forZones[2].name Invalid"},
		{"too many zone hints", func(_ *discoveryv1.EndpointSlice, e *discoveryv1.Endpoint) {
			e.Hints = &discoveryv1.EndpointHints{
				ForZones: make([]discoveryv1.ForZone, 9),
				ForNodes: make([]discoveryv1.ForNode, 1),
			}
		}, "endpoints[0].hints.forZones TooMany"},
		{"leading zero in the wrong family", func(s *discoveryv1.EndpointSlice, e *discoveryv1.Endpoint) {
			s.AddressType, e.Addresses[0] = discoveryv1.AddressTypeIPv6, "010.0.0.1"
		}, "endpoints[0].addresses[0] Invalid"},
		{"node hints", func(_ *discoveryv1.EndpointSlice, e *discoveryv1.Endpoint) {
			e.Hints = &discoveryv1.EndpointHints{ForNodes: make([]discoveryv1.ForNode, 9)}
		}, "endpoints[0].hints.forNodes TooMany"},
		{"port", func(s *discoveryv1.EndpointSlice, _ *discoveryv1.Endpoint) {
			s.Ports[0] = discoveryv1.EndpointPort{
				Name:        new("A"),
				Protocol:    new(corev1.Protocol("ICMP")),
				AppProtocol: new("a/b/c"),
			}
		}, "ports[0].appProtocol Invalid, ports[0].name Invalid, ports[0].protocol NotSupported"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := slice()
			test.change(s, &s.Endpoints[0])
			defaultEndpointSlice(s)
			if got := strings.Join(kindtest.Causes(validateEndpointSlice(s, nil)), ", "); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if got := strings.Join(kindtest.Causes(validateEndpointSlice(s, s)), ", "); strings.Contains(got,
				"endpoints") {
				t.Errorf("endpoints that the old object has: got %q", got)
			}
		})
	}
}

func TestDropTopology(t *testing.T) {
	t.Parallel()
	old := slice()
	old.Endpoints[0].DeprecatedTopology = map[string]string{corev1.LabelHostname: "node"}
	same := old.DeepCopy()
	dropTopology(same, old)
	if same.Endpoints[0].DeprecatedTopology == nil {
		t.Error("the topology of unchanged endpoints was dropped")
	}
	changed := old.DeepCopy()
	changed.Endpoints[0].Hostname = new("h")
	dropTopology(changed, old)
	if e := changed.Endpoints[0]; e.DeprecatedTopology != nil || e.NodeName == nil ||
		*e.NodeName != "node" {
		t.Errorf("got %v, node %v", e.DeprecatedTopology, e.NodeName)
	}
	fresh := old.DeepCopy()
	dropTopology(fresh, nil)
	if e := fresh.Endpoints[0]; e.DeprecatedTopology != nil || e.NodeName != nil {
		t.Errorf("a new slice keeps %v, node %v", e.DeprecatedTopology, e.NodeName)
	}
}

func TestGeneration(t *testing.T) {
	t.Parallel()
	old, s := slice(), slice()
	s.Kind = "EndpointSlice"
	s.Annotations = map[string]string{"a": "b"}
	if !sameEndpoints(s, old) {
		t.Error("an annotation counts as a change")
	}
	s.Labels = map[string]string{discoveryv1.LabelServiceName: "s"}
	if sameEndpoints(s, old) {
		t.Error("a label does not count as a change")
	}
	s.Labels, s.Endpoints[0].DeprecatedTopology = nil, map[string]string{"a": "b"}
	EndpointSlices().PrepareUpdate(t.Context(), s, old)
	if s.Generation != 1 || s.Endpoints[0].DeprecatedTopology != nil {
		t.Errorf("with a topology that is dropped: generation %d, %v",
			s.Generation, s.Endpoints[0].DeprecatedTopology)
	}
}
