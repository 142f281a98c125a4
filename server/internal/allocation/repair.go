package allocation

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

const servicesPath = "/services/specs"

// Leaks are reservations without a service. A process leaves them behind if it ends between
// reserving and creating, or between deleting and releasing.
type Leaks struct {
	IPs       sets.Set[string]
	NodePorts sets.Set[int32]
}

// Empty reports whether there are no leaks.
func (l Leaks) Empty() bool { return len(l.IPs) == 0 && len(l.NodePorts) == 0 }

// Repair makes the reservations match the services. It reserves what services use but have not
// reserved. It passes the reservations that no service uses to free, frees those that free returns,
// and returns the others. A reservation may look leaked because its service is just being created.
// The caller must rule that out.
func (a *Allocator) Repair(ctx context.Context, free func(Leaks) Leaks) (Leaks, error) {
	store := a.store
	leaks := Leaks{IPs: sets.New[string](), NodePorts: sets.New[int32]()}
	var services corev1.ServiceList
	if err := everything(ctx, store.services, servicesPath, &services); err != nil {
		return leaks, fmt.Errorf("list services: %w", err)
	}
	owners, ports := inUse(services.Items)

	var list networkingv1.IPAddressList
	if err := everything(ctx, store.addresses, addressesPath, &list); err != nil {
		return leaks, fmt.Errorf("list IP addresses: %w", err)
	}
	present := sets.New[string]()
	for i := range list.Items {
		address := &list.Items[i]
		if owner, used := owners[address.Name]; used {
			if isParent(address, owner) {
				present.Insert(address.Name)
			} else if err := store.remove(ctx, address.Name, func(a *networkingv1.IPAddress) bool {
				return !isParent(a, owner)
			}); err != nil {
				return leaks, err
			}
		} else if address.Labels[networkingv1.LabelManagedBy] == allocatorName {
			leaks.IPs.Insert(address.Name)
		}
	}
	for ip, owner := range owners {
		if addr, err := netip.ParseAddr(ip); err == nil && !present.Has(ip) {
			if err := store.take(ctx, addr, owner); err != nil {
				return leaks, fmt.Errorf("reserve %s for service %s/%s: %w",
					ip, owner.Namespace, owner.Name, err)
			}
		}
	}

	err := store.changePorts(ctx, a.ports, func(b bitmap) (bool, error) {
		leaks.NodePorts = sets.New[int32]()
		for i := range b.bits.BitLen() {
			if port := b.first + int32(i); b.bits.Bit(i) == 1 && !ports.Has(port) {
				leaks.NodePorts.Insert(port)
			}
		}
		changed := false
		for port := range ports {
			if b.covers(port) && !b.has(port) {
				b.set(port, true)
				changed = true
			}
		}
		return changed, nil
	})
	if err != nil {
		return leaks, fmt.Errorf("repair node ports: %w", err)
	}
	if leaks.Empty() {
		return leaks, nil
	}
	return a.free(ctx, store, leaks, free(leaks))
}

// free frees the leaks that are in chosen and returns the others.
func (a *Allocator) free(ctx context.Context, store *stores, leaks, chosen Leaks) (Leaks, error) {
	for ip := range leaks.IPs.Intersection(chosen.IPs) {
		managed := func(a *networkingv1.IPAddress) bool {
			return a.Labels[networkingv1.LabelManagedBy] == allocatorName
		}
		if err := store.remove(ctx, ip, managed); err != nil {
			return leaks, err
		}
		leaks.IPs.Delete(ip)
	}
	if ports := leaks.NodePorts.Intersection(chosen.NodePorts); len(ports) > 0 {
		if err := a.ReleaseNodePorts(ctx, sets.List(ports)...); err != nil {
			return leaks, fmt.Errorf("free node ports: %w", err)
		}
		leaks.NodePorts = leaks.NodePorts.Difference(ports)
	}
	return leaks, nil
}

func isParent(a *networkingv1.IPAddress, s *corev1.Service) bool {
	return a.Spec.ParentRef != nil && *a.Spec.ParentRef == parentOf(s)
}

// inUse returns the addresses of services in canonical form, each with the oldest service that has
// it, and the node ports of services.
func inUse(services []corev1.Service) (map[string]*corev1.Service, sets.Set[int32]) {
	oldestFirst := make([]*corev1.Service, len(services))
	for i := range services {
		oldestFirst[i] = &services[i]
	}
	slices.SortStableFunc(oldestFirst, func(a, b *corev1.Service) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	owners, ports := map[string]*corev1.Service{}, sets.New[int32]()
	for _, s := range oldestFirst {
		for _, ip := range append([]string{s.Spec.ClusterIP}, s.Spec.ClusterIPs...) {
			if addr := parseAddress(ip); addr.IsValid() && owners[addr.String()] == nil {
				owners[addr.String()] = s
			}
		}
		for _, p := range s.Spec.Ports {
			if p.NodePort != 0 && s.Spec.Type != corev1.ServiceTypeExternalName {
				ports.Insert(p.NodePort)
			}
		}
		if s.Spec.HealthCheckNodePort != 0 {
			ports.Insert(s.Spec.HealthCheckNodePort)
		}
	}
	return owners, ports
}
