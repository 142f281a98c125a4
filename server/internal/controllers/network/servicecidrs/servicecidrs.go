// Package servicecidrs sets the Ready condition of ServiceCIDRs. It keeps a ServiceCIDR that is
// being deleted as long as addresses are in use that are in no other ServiceCIDR (KEP-1880).
package servicecidrs

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	networkingv1ac "k8s.io/client-go/applyconfigurations/networking/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kinproc/kinproc/server/internal/allocation"
	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

const (
	// Name is the name of the loop in kube-controller-manager.
	Name = "service-cidr-controller"
	// Finalizer protects a ServiceCIDR that is in use.
	Finalizer = "networking.k8s.io/service-cidr-finalizer"

	// grace is the time in which every API server notices that a ServiceCIDR is being deleted and
	// stops taking addresses from it.
	grace = 10 * time.Second
	// recheck is the interval between two checks of the addresses of a ServiceCIDR that is being
	// deleted.
	recheck = 5 * time.Second
)

// Loop is the loop that manages the finalizer and the Ready condition of ServiceCIDRs. Kept are the
// blocks of the one that the API server recreates when it is deleted. That one is released at once,
// even if its addresses are in use, because no service gets an address until it has been recreated.
func Loop(kept []string) loop.Loop {
	return loop.Loop{
		Name: Name, Alias: "servicecidr",
		Purpose: "protects ServiceCIDRs whose addresses are in use, and sets their status",
		Begin: func(l *loop.Controller) loop.Work {
			c := &controller{l, l.Informer(&networkingv1.ServiceCIDR{}), kept}
			return loop.Work{Sync: c.sync, Watches: []loop.Watch{loop.Keys(c.cidrs, c.Enqueue)}}
		},
	}
}

type controller struct {
	*loop.Controller
	cidrs cache.SharedIndexInformer
	kept  []string
}

func (c *controller) sync(ctx context.Context, name string) (time.Duration, error) {
	cidr := loop.Get[networkingv1.ServiceCIDR](c.cidrs, name)
	if cidr == nil {
		return 0, nil
	}
	if cidr.DeletionTimestamp == nil {
		if !slices.Contains(cidr.Finalizers, Finalizer) {
			return 0, c.setFinalizers(ctx, cidr, append(slices.Clone(cidr.Finalizers), Finalizer))
		}
		return 0, c.say(ctx, cidr, metav1.ConditionTrue, "",
			"services may use the addresses of this ServiceCIDR")
	}
	if !slices.Contains(cidr.Finalizers, Finalizer) {
		return 0, nil
	}
	if cidr.Name == allocation.DefaultCIDRName && slices.Equal(cidr.Spec.CIDRs, c.kept) {
		return 0, c.release(ctx, cidr)
	}
	used, err := c.orphan(ctx, cidr)
	if err != nil {
		return 0, err
	}
	if used != "" {
		err := c.say(ctx, cidr, metav1.ConditionFalse, networkingv1.ServiceCIDRReasonTerminating,
			"address "+used+" is in use and is not in another ServiceCIDR")
		return 0, cmp.Or(err, error(loop.Poll(recheck)))
	}
	if err := c.say(ctx, cidr, metav1.ConditionFalse, networkingv1.ServiceCIDRReasonTerminating,
		"no address in use depends on this ServiceCIDR"); err != nil {
		return 0, err
	}
	if wait := loop.Left(cidr.DeletionTimestamp.Time, grace, time.Now()); wait > 0 {
		return wait, nil
	}
	return 0, c.release(ctx, cidr)
}

// release removes the finalizer from a ServiceCIDR.
func (c *controller) release(ctx context.Context, cidr *networkingv1.ServiceCIDR) error {
	return c.setFinalizers(ctx, cidr,
		slices.DeleteFunc(slices.Clone(cidr.Finalizers), func(f string) bool { return f == Finalizer }))
}

func (c *controller) setFinalizers(
	ctx context.Context, cidr *networkingv1.ServiceCIDR, finalizers []string,
) error {
	cidr = cidr.DeepCopy()
	cidr.Finalizers = finalizers
	_, err := c.Client.NetworkingV1().ServiceCIDRs().Update(ctx, cidr, metav1.UpdateOptions{})
	return loop.IgnoreNotFound(err)
}

// say sets the Ready condition unless it already has the status.
func (c *controller) say(
	ctx context.Context, cidr *networkingv1.ServiceCIDR, status metav1.ConditionStatus,
	reason, message string,
) error {
	if is := meta.FindStatusCondition(cidr.Status.Conditions,
		networkingv1.ServiceCIDRConditionReady); is != nil && is.Status == status {
		return nil
	}
	apply := networkingv1ac.ServiceCIDR(cidr.Name).
		WithStatus(networkingv1ac.ServiceCIDRStatus().WithConditions(
			metav1ac.Condition().WithType(networkingv1.ServiceCIDRConditionReady).WithStatus(status).
				WithReason(reason).WithMessage(message).
				WithLastTransitionTime(metav1.Now())))
	_, err := c.Client.NetworkingV1().ServiceCIDRs().ApplyStatus(ctx, apply,
		metav1.ApplyOptions{FieldManager: Name, Force: true})
	return err
}

// orphan returns an address in use that would be in no ServiceCIDR without this one. It returns ""
// if there is none.
func (c *controller) orphan(ctx context.Context, cidr *networkingv1.ServiceCIDR) (string, error) {
	var others []netip.Prefix
	for _, obj := range c.cidrs.GetStore().List() {
		other := obj.(*networkingv1.ServiceCIDR)
		if other.Name != cidr.Name && other.DeletionTimestamp == nil {
			others = append(others, prefixes(other)...)
		}
	}
	own := prefixes(cidr)
	addresses, err := c.Client.NetworkingV1().IPAddresses().List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", fmt.Errorf("list IP addresses: %w", err)
	}
	for _, a := range addresses.Items {
		addr, err := netip.ParseAddr(a.Name)
		contains := func(p netip.Prefix) bool { return p.Contains(addr) }
		if err == nil && slices.ContainsFunc(own, contains) && !slices.ContainsFunc(others, contains) {
			return a.Name, nil
		}
	}
	return "", nil
}

func prefixes(cidr *networkingv1.ServiceCIDR) []netip.Prefix {
	var list []netip.Prefix
	for _, c := range cidr.Spec.CIDRs {
		if p, err := netip.ParsePrefix(c); err == nil {
			list = append(list, p)
		}
	}
	return list
}
