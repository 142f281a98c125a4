package legacy

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// A row shows a few endpoints, and does not make the others to count them.
func TestFormatEndpoints(t *testing.T) {
	many := corev1.EndpointSubset{
		Addresses: make([]corev1.EndpointAddress, 1000), Ports: make([]corev1.EndpointPort, 1000),
	}
	many.Addresses[0].IP, many.Addresses[1].IP, many.Ports[0].Port = "10.0.0.1", "::1", 80
	for want, subsets := range map[string][]corev1.EndpointSubset{
		"<none>": nil,
		"":       {{}, {Ports: many.Ports}},
		"10.0.0.1,::1": {
			{Addresses: many.Addresses[:2]}, {NotReadyAddresses: many.Addresses},
		},
		"10.0.0.1:80,10.0.0.1:0,10.0.0.1 + 1 more...": {
			{Addresses: many.Addresses[:1], Ports: many.Ports[:2]}, {Addresses: many.Addresses[:2]},
		},
		"10.0.0.1:80,[::1]:80,:80 + 999997 more...": {many},
	} {
		e := &corev1.Endpoints{Subsets: subsets}
		allocations := testing.AllocsPerRun(1, func() {
			if got := formatEndpoints(e); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
		if allocations > 100 {
			t.Errorf("%q takes %v allocations", want, allocations)
		}
	}
}
