package endpointslicemirroring

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apimachineryvalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/endpointslice/util"
	utilnet "k8s.io/utils/net"
)

// perSubset is the most addresses of a subset that are mirrored, as in kube-controller-manager.
const perSubset = 1000

// problem is an event about endpoints that cannot be mirrored as they are.
type problem struct{ reason, message string }

// group is what the endpoints in a slice share.
type group struct {
	ports       util.PortMapKey
	addressType discoveryv1.AddressType
}

func groupOf(s *discoveryv1.EndpointSlice) group {
	return group{util.NewPortMapKey(slices.Clone(s.Ports)), s.AddressType} // it sorts the ports
}

// slicesOf returns the slices that mirror endpoints: one for each set of ports and address family.
func slicesOf(e *corev1.Endpoints) ([]*discoveryv1.EndpointSlice, []problem) {
	var (
		wanted          []*discoveryv1.EndpointSlice
		problems        []problem
		invalid, passed int
	)
	byGroup := map[group]*discoveryv1.EndpointSlice{}
	for _, subset := range e.Subsets {
		ports := portsOf(subset.Ports)
		key := util.NewPortMapKey(ports) // sorts the ports
		mirrored := 0
		add := func(addresses []corev1.EndpointAddress, ready bool) {
			for _, a := range addresses {
				if mirrored >= perSubset {
					passed++
					continue
				}
				family, ok := familyOf(a.IP)
				if !ok {
					invalid++
					continue
				}
				slice := byGroup[group{key, family}]
				if slice == nil {
					slice = newSlice(e, ports, family)
					byGroup[group{key, family}] = slice
					wanted = append(wanted, slice)
				}
				slice.Endpoints = append(slice.Endpoints, endpointOf(a, ready))
				mirrored++
			}
		}
		add(subset.Addresses, true)
		add(subset.NotReadyAddresses, false)
	}
	if invalid > 0 {
		problems = append(problems, problem{"InvalidIPAddress", fmt.Sprintf(
			"Skipped %d invalid IP addresses when mirroring to EndpointSlices", invalid)})
	}
	if passed > 0 {
		problems = append(problems, problem{"TooManyAddressesToMirror", fmt.Sprintf("A max of %d "+
			"addresses can be mirrored to EndpointSlices per Endpoints subset. %d addresses were skipped",
			perSubset, passed)})
	}
	if len(wanted) == 0 {
		// An empty slice says that the Service has no endpoints.
		wanted = append(wanted, newSlice(e, []discoveryv1.EndpointPort{}, discoveryv1.AddressTypeIPv4))
	}
	return wanted, problems
}

func portsOf(ports []corev1.EndpointPort) []discoveryv1.EndpointPort {
	mirrored := []discoveryv1.EndpointPort{}
	for _, p := range ports {
		mirrored = append(mirrored, discoveryv1.EndpointPort{
			Name: new(p.Name), Port: new(p.Port), Protocol: new(p.Protocol), AppProtocol: p.AppProtocol,
		})
	}
	return mirrored
}

func familyOf(address string) (discoveryv1.AddressType, bool) {
	ip := utilnet.ParseIPSloppy(address)
	switch {
	case ip == nil:
		return "", false
	case utilnet.IsIPv6(ip):
		return discoveryv1.AddressTypeIPv6, true
	}
	return discoveryv1.AddressTypeIPv4, true
}

func endpointOf(a corev1.EndpointAddress, ready bool) discoveryv1.Endpoint {
	endpoint := discoveryv1.Endpoint{
		Addresses:  []string{utilnet.ParseIPSloppy(a.IP).String()}, // without leading zeros
		Conditions: discoveryv1.EndpointConditions{Ready: &ready},
		TargetRef:  a.TargetRef,
		NodeName:   a.NodeName,
	}
	if a.Hostname != "" {
		endpoint.Hostname = &a.Hostname
	}
	return endpoint
}

// newSlice returns an empty slice with the labels and annotations of the endpoints.
func newSlice(
	e *corev1.Endpoints, ports []discoveryv1.EndpointPort, family discoveryv1.AddressType,
) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   e.Namespace,
			Labels:      maps.Clone(e.Labels),
			Annotations: maps.Clone(e.Annotations),
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(e, corev1.SchemeGroupVersion.WithKind("Endpoints")),
			},
		},
		AddressType: family,
		Ports:       slices.Clone(ports),
		Endpoints:   []discoveryv1.Endpoint{},
	}
	slice.GenerateName = e.Name + "-"
	if len(apimachineryvalidation.NameIsDNSSubdomain(slice.GenerateName, true)) > 0 {
		slice.GenerateName = e.Name // too long for the dash
	}
	if slice.Labels == nil {
		slice.Labels = map[string]string{}
	}
	slice.Labels[discoveryv1.LabelServiceName] = e.Name
	slice.Labels[discoveryv1.LabelManagedBy] = managedBy
	delete(slice.Annotations, corev1.LastAppliedConfigAnnotation)
	delete(slice.Annotations, corev1.EndpointsLastChangeTriggerTime)
	return slice
}
