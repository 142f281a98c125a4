// Package loadbalancers gives Services of type LoadBalancer an address, as a cloud does. Nothing
// listens there.
package loadbalancers

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

const (
	// Name is the name of the loop in cloud-controller-manager.
	Name = "service-lb-controller"
	// Class is the class of Services that this loop is for. It is also for those without a class.
	Class = "kinproc.dev/load-balancer"
)

// Range is where the addresses come from. The zero value has none.
type Range struct{ prefix netip.Prefix }

// ParseRange parses a CIDR. An empty text stands for no addresses.
func ParseRange(text string) (Range, error) {
	if text == "" {
		return Range{}, nil
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return Range{}, fmt.Errorf("%q is not a range of addresses such as 192.0.2.0/24", text)
	}
	if p != p.Masked() {
		return Range{}, fmt.Errorf("%q has bits after the prefix: use %s", text, p.Masked())
	}
	if p.Addr().BitLen()-p.Bits() < 2 {
		return Range{}, fmt.Errorf("%q is too small: use a range of at least 4 addresses", text)
	}
	for _, other := range special() {
		if p.Overlaps(other.prefix) {
			return Range{}, fmt.Errorf("%q has %s addresses (%s), at which nothing can be reached: use a "+
				"range such as 192.0.2.0/24", text, other.kind, other.prefix)
		}
	}
	return Range{p}, nil
}

// specialRange is a range of which no address leads to a load balancer.
type specialRange struct {
	kind   string
	prefix netip.Prefix
}

func special() (all []specialRange) {
	for _, s := range []struct{ kind, prefix string }{
		{"unspecified", "0.0.0.0/8"}, {"loopback", "127.0.0.0/8"}, {"link-local", "169.254.0.0/16"},
		{"multicast", "224.0.0.0/4"}, {"reserved", "240.0.0.0/4"}, {"unspecified", "::/128"},
		{"loopback", "::1/128"}, {"IPv4-mapped", "::ffff:0:0/96"}, {"link-local", "fe80::/10"},
		{"multicast", "ff00::/8"},
	} {
		all = append(all, specialRange{s.kind, netip.MustParsePrefix(s.prefix)})
	}
	return all
}

// Overlaps reports whether the range has addresses of a CIDR, which is the text of a valid one.
func (r Range) Overlaps(cidr string) bool {
	p, err := netip.ParsePrefix(cidr)
	return err == nil && r.prefix.Overlaps(p)
}

// IsValid reports whether the range has addresses.
func (r Range) IsValid() bool { return r.prefix.IsValid() }

// Shared returns the first address, which Ingresses and Gateways have together. Services have the
// others.
func (r Range) Shared() netip.Addr {
	if !r.IsValid() {
		return netip.Addr{}
	}
	return r.prefix.Addr().Next()
}

// Loop is the loop of Services of type LoadBalancer. It is off if the range has no addresses.
func Loop(r Range) loop.Loop {
	return loop.Loop{
		Name: Name, Alias: "service", Component: "service-controller",
		Purpose:  "gives Services of type LoadBalancer an address",
		Workload: true, Idle: !r.IsValid(),
		Begin: func(l *loop.Controller) loop.Work { return begin(l, r) },
		After: []schema.GroupResource{corev1.Resource("services")},
	}
}

type controller struct {
	*loop.Controller
	services cache.SharedIndexInformer
	addrs    Range
	// given are the addresses by the keys of their Services, and taken is the reverse. The informer
	// may be behind. Only Sync, which is called for one key at a time, uses them.
	given map[string]netip.Addr
	taken map[netip.Addr]string
	known bool // the addresses of all Services that existed are in them
	// next is where the search for a free address begins.
	next netip.Addr
	// waiting are the keys for which there was no address.
	waiting map[string]bool
}

func begin(l *loop.Controller, r Range) loop.Work {
	c := &controller{
		Controller: l, services: l.Informer(&corev1.Service{}), addrs: r,
		given: map[string]netip.Addr{}, taken: map[netip.Addr]string{}, waiting: map[string]bool{},
		next: r.Shared().Next(),
	}
	return loop.Work{Sync: c.sync, Watches: []loop.Watch{loop.Keys(c.services, c.Enqueue)}}
}

// balanced reports whether the loop is for a Service.
func balanced(s *corev1.Service) bool {
	return s != nil && s.DeletionTimestamp == nil &&
		s.Spec.Type == corev1.ServiceTypeLoadBalancer &&
		(s.Spec.LoadBalancerClass == nil || *s.Spec.LoadBalancerClass == Class)
}

func (c *controller) sync(ctx context.Context, key string) (time.Duration, error) {
	c.learn()
	s := loop.Get[corev1.Service](c.services, key)
	if !balanced(s) {
		c.release(key)
		return 0, nil
	}
	if len(s.Status.LoadBalancer.Ingress) > 0 {
		c.keep(key, s)
		return 0, nil
	}
	addr, ok := c.give(key, s)
	if !ok {
		c.waiting[key] = true
		c.Recorder.Eventf(s, corev1.EventTypeWarning, "SyncLoadBalancerFailed",
			"no address is left in %s", c.addrs.prefix)
		return 0, nil
	}
	updated := s.DeepCopy()
	updated.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: addr.String()}}
	_, err := c.Client.CoreV1().Services(s.Namespace).UpdateStatus(ctx, updated,
		metav1.UpdateOptions{})
	if err == nil {
		c.Recorder.Event(s, corev1.EventTypeNormal, "EnsuredLoadBalancer", "Ensured load balancer")
	}
	return 0, loop.IgnoreChanged(err)
}

// learn notes the addresses that Services have from an earlier run, before another one gets them.
func (c *controller) learn() {
	if c.known {
		return
	}
	c.known = true
	for _, obj := range c.services.GetStore().List() {
		if s := obj.(*corev1.Service); balanced(s) {
			c.keep(loop.Key(s), s)
		}
	}
}

// keep notes the address that a Service has.
func (c *controller) keep(key string, s *corev1.Service) {
	for _, i := range s.Status.LoadBalancer.Ingress {
		addr, err := netip.ParseAddr(i.IP)
		if err != nil || !c.addrs.prefix.Contains(addr) || c.given[key] == addr {
			continue
		}
		c.release(key)
		if c.taken[addr] == "" { // otherwise somebody has written the same address twice
			c.given[key], c.taken[addr] = addr, key
		}
	}
}

// give returns the address of a Service: the one that it asks for if that is free, or another one.
func (c *controller) give(key string, s *corev1.Service) (netip.Addr, bool) {
	if addr, ok := c.given[key]; ok {
		return addr, true
	}
	wanted, err := netip.ParseAddr(s.Spec.LoadBalancerIP)
	if err == nil && c.free(wanted) {
		c.given[key], c.taken[wanted] = wanted, key
		return wanted, true
	}
	for range len(c.taken) + 2 { // one of so many is free, unless the range has an end
		addr := c.next
		if c.next = addr.Next(); !c.usable(c.next) {
			c.next = c.addrs.Shared().Next()
		}
		if c.free(addr) {
			c.given[key], c.taken[addr] = addr, key
			return addr, true
		}
	}
	return netip.Addr{}, false
}

// usable reports whether an address is one for Services. The last one is for broadcasts.
func (c *controller) usable(addr netip.Addr) bool {
	return c.addrs.prefix.Contains(addr) && c.addrs.prefix.Contains(addr.Next()) &&
		c.addrs.Shared().Less(addr)
}

func (c *controller) free(addr netip.Addr) bool { return c.usable(addr) && c.taken[addr] == "" }

// release frees the address of a Service, which another one may be waiting for.
func (c *controller) release(key string) {
	delete(c.waiting, key)
	addr, ok := c.given[key]
	if !ok {
		return
	}
	delete(c.given, key)
	delete(c.taken, addr)
	for other := range c.waiting {
		delete(c.waiting, other)
		c.Enqueue(other)
	}
}
