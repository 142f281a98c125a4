package allocation

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
)

const (
	addressesPath = "/ipaddresses"
	// allocatorName is the managed-by label of addresses that were allocated to services.
	allocatorName = "ipallocator.k8s.io"
	// fieldManager is the field manager of the objects that kube-apiserver writes itself.
	fieldManager = "kube-apiserver"
	// guesses is the number of random addresses to try before listing all addresses in use.
	guesses = 8
)

// addressFields are the fields of an IPAddress that fieldManager owns.
const addressFields = `{"f:metadata":{"f:labels":{".":{},` +
	`"f:ipaddress.kubernetes.io/ip-family":{},"f:ipaddress.kubernetes.io/managed-by":{}}},` +
	`"f:spec":{"f:parentRef":{".":{},"f:name":{},"f:namespace":{},"f:resource":{}}}}`

// errStop aborts a storage operation that has nothing to do.
var errStop = errors.New("nothing to do")

// AllocateIP reserves ip for the service, or any address of the family if ip is empty, and returns
// it. If dryRun is true, it reserves nothing.
func (a *Allocator) AllocateIP(
	ctx context.Context, s *corev1.Service, family corev1.IPFamily, ip string, dryRun bool,
) (string, error) {
	store := a.store
	blocks, err := store.blocks(ctx, family)
	if err != nil {
		return "", err
	}
	take := func(addr netip.Addr) error { return store.take(ctx, addr, s) }
	if dryRun {
		take = func(addr netip.Addr) error { return store.check(ctx, addr) }
	}
	if ip != "" {
		addr := parseAddress(ip)
		for _, b := range blocks {
			if !b.contains(addr) {
				continue
			}
			if dryRun { // as in kube-apiserver, which does not check whether it is in use
				return addr.String(), nil
			}
			return addr.String(), take(addr)
		}
		return "", errors.New("the provided network does not match the current range")
	}
	for _, b := range blocks {
		for _, band := range bands(b.size, b.staticPart()) {
			addr, err := store.takeAny(ctx, b, band, take)
			if err == nil {
				return addr.String(), nil
			}
			if !errors.Is(err, ErrTaken) {
				return "", err
			}
		}
	}
	if len(blocks) == 0 {
		return "", fmt.Errorf("no ServiceCIDR with %s addresses is ready", family)
	}
	return "", fmt.Errorf("range is full: every %s address of the ServiceCIDRs is in use", family)
}

// takeAny takes any free address in the band. It returns ErrTaken if there is none. In a sparsely
// used band, a random address is likely to be free. In a crowded one, the list of addresses shows
// which ones are free.
func (s *stores) takeAny(
	ctx context.Context, b block, in band, take func(netip.Addr) error,
) (netip.Addr, error) {
	if in.start >= in.end {
		return netip.Addr{}, ErrTaken
	}
	for range guesses {
		addr := b.at(in.random())
		if err := take(addr); !errors.Is(err, ErrTaken) {
			return addr, err
		}
	}
	var list networkingv1.IPAddressList
	if err := everything(ctx, s.addresses, addressesPath, &list); err != nil {
		return netip.Addr{}, fmt.Errorf("list IP addresses: %w", err)
	}
	used := sets.New[string]()
	for _, a := range list.Items {
		used.Insert(a.Name)
	}
	var found netip.Addr
	err := ErrTaken
	in.each(func(n uint64) bool {
		addr := b.at(n)
		if used.Has(addr.String()) {
			return true
		}
		if err = take(addr); errors.Is(err, ErrTaken) {
			return true
		}
		found = addr
		return false
	})
	return found, err
}

// blocks returns the blocks of the family in all ServiceCIDRs that are ready, those of the default
// ServiceCIDR first.
func (s *stores) blocks(ctx context.Context, family corev1.IPFamily) ([]block, error) {
	var list networkingv1.ServiceCIDRList
	if err := everything(ctx, s.cidrs, cidrsPath, &list); err != nil {
		return nil, fmt.Errorf("list service CIDRs: %w", err)
	}
	var blocks []block
	for i := range list.Items {
		c := &list.Items[i]
		if !isReady(c) {
			continue
		}
		for _, cidr := range c.Spec.CIDRs {
			b, err := parseBlock(cidr)
			if err != nil || b.family() != family {
				continue // another family, or nothing can be allocated from it
			}
			if c.Name == DefaultCIDRName {
				blocks = append([]block{b}, blocks...)
			} else {
				blocks = append(blocks, b)
			}
		}
	}
	return blocks, nil
}

// isReady reports whether addresses may be taken from a ServiceCIDR. Without a Ready condition it
// is ready, because there may be no controller that sets the condition.
func isReady(c *networkingv1.ServiceCIDR) bool {
	if c.DeletionTimestamp != nil {
		return false
	}
	for _, condition := range c.Status.Conditions {
		if condition.Type == networkingv1.ServiceCIDRConditionReady {
			return condition.Status == metav1.ConditionTrue
		}
	}
	return true
}

func addressKey(name string) string { return addressesPath + "/" + name }

func parentOf(s *corev1.Service) networkingv1.ParentReference {
	return networkingv1.ParentReference{Resource: "services", Namespace: s.Namespace, Name: s.Name}
}

// take creates the IPAddress for a service. It returns ErrTaken if the address exists.
func (s *stores) take(ctx context.Context, addr netip.Addr, service *corev1.Service) error {
	a := newAddress(addr, parentOf(service))
	err := s.addresses.Create(ctx, addressKey(a.Name), a, nil, 0)
	if storage.IsExist(err) {
		return fmt.Errorf("provided IP %w", ErrTaken)
	}
	if err != nil {
		return fmt.Errorf("create IP address %s: %w", addr, err)
	}
	return nil
}

// NewAddress returns the IPAddress that reserves a cluster IP for a service.
func NewAddress(addr netip.Addr, service *corev1.Service) *networkingv1.IPAddress {
	return newAddress(addr, parentOf(service))
}

func newAddress(addr netip.Addr, parent networkingv1.ParentReference) *networkingv1.IPAddress {
	family := corev1.IPv6Protocol
	if addr.Is4() {
		family = corev1.IPv4Protocol
	}
	a := &networkingv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{
			Name: addr.String(),
			Labels: map[string]string{
				networkingv1.LabelIPAddressFamily: string(family),
				networkingv1.LabelManagedBy:       allocatorName,
			},
		},
		Spec: networkingv1.IPAddressSpec{ParentRef: &parent},
	}
	rest.FillObjectMetaSystemFields(a)
	a.ManagedFields = []metav1.ManagedFieldsEntry{
		managed(a.CreationTimestamp, networkingv1.SchemeGroupVersion.String(), addressFields),
	}
	return a
}

func managed(at metav1.Time, apiVersion, fields string) metav1.ManagedFieldsEntry {
	at = metav1.NewTime(at.Truncate(time.Second))
	return metav1.ManagedFieldsEntry{
		Manager:    fieldManager,
		Operation:  metav1.ManagedFieldsOperationUpdate,
		APIVersion: apiVersion,
		Time:       &at,
		FieldsType: "FieldsV1",
		FieldsV1:   metav1.NewFieldsV1(fields),
	}
}

// check returns ErrTaken if the address exists.
func (s *stores) check(ctx context.Context, addr netip.Addr) error {
	var a networkingv1.IPAddress
	err := s.addresses.Get(ctx, addressKey(addr.String()), storage.GetOptions{}, &a)
	switch {
	case err == nil:
		return ErrTaken
	case storage.IsNotFound(err):
		return nil
	}
	return fmt.Errorf("get IP address %s: %w", addr, err)
}

// ReleaseIP frees an address if it belongs to the service.
func (a *Allocator) ReleaseIP(ctx context.Context, s *corev1.Service, ip string) error {
	store := a.store
	parent := parentOf(s)
	return store.remove(ctx, parseAddress(ip).String(), func(a *networkingv1.IPAddress) bool {
		return a.Spec.ParentRef != nil && *a.Spec.ParentRef == parent
	})
}

// remove deletes an address if it still exists and meets the condition.
func (s *stores) remove(
	ctx context.Context, name string, condition func(*networkingv1.IPAddress) bool,
) error {
	validate := func(_ context.Context, obj runtime.Object) error {
		if !condition(obj.(*networkingv1.IPAddress)) {
			return errStop
		}
		return nil
	}
	err := s.addresses.Delete(ctx, addressKey(name), &networkingv1.IPAddress{}, nil, validate, nil,
		storage.DeleteOptions{})
	if err == nil || storage.IsNotFound(err) || errors.Is(err, errStop) {
		return nil
	}
	return fmt.Errorf("delete IP address %s: %w", name, err)
}
