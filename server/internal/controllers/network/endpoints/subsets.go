package endpoints

import (
	"cmp"
	"crypto/md5" //nolint:gosec // an order, not a secret
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/endpointslice"
	"k8s.io/endpointslice/util"
	"k8s.io/utils/dump"
	utilnet "k8s.io/utils/net"

	"github.com/kinproc/kinproc/server/internal/controllers/pods"
)

// subsetsOf returns the subsets of a Service with the given pods: one for each set of ports, with
// all pods that have these. The order is that of kube-controller-manager, so that both agree about
// what is up to date.
func subsetsOf(s *corev1.Service, backends []*corev1.Pod) []corev1.EndpointSubset {
	byPorts := map[string]*corev1.EndpointSubset{}
	for _, pod := range backends {
		if !util.ShouldPodBeInEndpoints(pod, s.Spec.PublishNotReadyAddresses) {
			continue
		}
		address, ok := addressOf(s, pod)
		if !ok {
			continue
		}
		ports := portsOf(s, pod)
		if len(ports) == 0 && !(len(s.Spec.Ports) == 0 && s.Spec.ClusterIP == corev1.ClusterIPNone) {
			continue
		}
		key := string(hash(ports))
		subset := byPorts[key]
		if subset == nil {
			subset = &corev1.EndpointSubset{Ports: ports}
			byPorts[key] = subset
		}
		if s.Spec.PublishNotReadyAddresses || pods.Ready(pod) {
			subset.Addresses = append(subset.Addresses, address)
		} else {
			subset.NotReadyAddresses = append(subset.NotReadyAddresses, address)
		}
	}
	var subsets []corev1.EndpointSubset
	for _, subset := range byPorts {
		for _, addresses := range [][]corev1.EndpointAddress{
			subset.Addresses, subset.NotReadyAddresses,
		} {
			slices.SortFunc(addresses, func(a, b corev1.EndpointAddress) int {
				return cmp.Or(strings.Compare(a.IP, b.IP),
					strings.Compare(string(a.TargetRef.UID), string(b.TargetRef.UID)))
			})
		}
		subsets = append(subsets, *subset)
	}
	sortByHash(subsets)
	return subsets
}

// sortByHash hashes each element once, because a Service may have thousands of ports.
func sortByHash[T any](list []T) {
	type hashed struct {
		hash []byte
		of   T
	}
	all := make([]hashed, len(list))
	for i := range list {
		all[i] = hashed{hash(list[i]), list[i]}
	}
	slices.SortFunc(all, func(a, b hashed) int { return slices.Compare(a.hash, b.hash) })
	for i := range all {
		list[i] = all[i].of
	}
}

// hash returns what kube-controller-manager orders ports and subsets by.
func hash(v any) []byte {
	sum := md5.Sum([]byte(dump.ForHash(v))) //nolint:gosec // an order, not a secret
	return sum[:]
}

func portsOf(s *corev1.Service, pod *corev1.Pod) []corev1.EndpointPort {
	var ports []corev1.EndpointPort
	for i := range s.Spec.Ports {
		p := &s.Spec.Ports[i]
		number, err := endpointslice.FindPort(pod, p)
		if err != nil {
			continue // the pod has no port with this name
		}
		ports = append(ports, corev1.EndpointPort{
			Name: p.Name, Port: int32(number), Protocol: p.Protocol, AppProtocol: p.AppProtocol,
		})
	}
	sortByHash(ports)
	return ports
}

// addressOf returns the address of a pod in the first address family of a Service.
func addressOf(s *corev1.Service, pod *corev1.Pod) (corev1.EndpointAddress, bool) {
	var v6 bool
	switch {
	case len(s.Spec.IPFamilies) > 0:
		v6 = s.Spec.IPFamilies[0] == corev1.IPv6Protocol
	case s.Spec.ClusterIP != "" && s.Spec.ClusterIP != corev1.ClusterIPNone:
		v6 = utilnet.IsIPv6String(s.Spec.ClusterIP)
	default:
		v6 = utilnet.IsIPv6String(pod.Status.PodIP)
	}
	for _, ip := range pod.Status.PodIPs {
		if utilnet.IsIPv6String(ip.IP) != v6 {
			continue
		}
		address := corev1.EndpointAddress{
			IP: ip.IP,
			TargetRef: &corev1.ObjectReference{
				Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
			},
		}
		if pod.Spec.NodeName != "" {
			address.NodeName = &pod.Spec.NodeName
		}
		if util.ShouldSetHostname(pod, s) {
			address.Hostname = pod.Spec.Hostname
		}
		return address, true
	}
	return corev1.EndpointAddress{}, false
}

// truncate reduces subsets to the capacity of an object, if necessary, and reports whether it was.
// Ready addresses take precedence, and each subset keeps its share.
func truncate(subsets []corev1.EndpointSubset) bool {
	var ready, all int
	for i := range subsets {
		ready += len(subsets[i].Addresses)
		all += len(subsets[i].Addresses) + len(subsets[i].NotReadyAddresses)
	}
	if all <= capacity {
		return false
	}
	keepReady := min(ready, capacity)
	keepOther := capacity - keepReady
	for i := range subsets {
		s := &subsets[i]
		s.Addresses = share(s.Addresses, ready, keepReady)
		s.NotReadyAddresses = share(s.NotReadyAddresses, all-ready, keepOther)
	}
	return true
}

// share returns the part of a list that is kept if keep of total are.
func share(list []corev1.EndpointAddress, total, keep int) []corev1.EndpointAddress {
	if total == 0 {
		return list
	}
	return list[:len(list)*keep/total]
}
