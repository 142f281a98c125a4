// Package servicecidrs says of ServiceCIDRs whether cluster IPs may be taken from them, and keeps one that is being deleted for as long as
// addresses of it, and of no other one, are in use (KEP-1880).
package servicecidrs

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	networkingv1ac "k8s.io/client-go/applyconfigurations/networking/v1"
	networkinginformers "k8s.io/client-go/informers/networking/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/kinproc/kinproc/server/internal/allocation"
	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

const (
	// Name is kube-controller-manager's name of the loop.
	Name = "service-cidr-controller"
	// Finalizer keeps a ServiceCIDR that is in use.
	Finalizer = "networking.k8s.io/service-cidr-finalizer"

	// grace is the time in which every API server notices that a ServiceCIDR is being deleted and takes no more addresses from it.
	grace = 10 * time.Second
	// recheck is how long the addresses of a ServiceCIDR that is being deleted are left alone between two looks at them.
	recheck = 5 * time.Second
)

// Controller is the control loop.
type Controller struct {
	client kubernetes.Interface
	cidrs  networkinginformers.ServiceCIDRInformer
	kept   []string
	queue  *loop.Queue
}

// New makes a controller. The caller starts the informer. Kept are the blocks of the ServiceCIDR that the API server makes anew when it is
// deleted: it goes at once, whatever addresses of it are in use, for until it is back no service gets an address.
func New(client kubernetes.Interface, cidrs networkinginformers.ServiceCIDRInformer, kept []string) *Controller {
	cidrs.Informer() // so that the caller's factory knows of it
	return &Controller{client: client, cidrs: cidrs, kept: kept, queue: loop.New(Name)}
}

// Run works until ctx ends, and returns when nothing of the controller runs any more.
func (c *Controller) Run(ctx context.Context) error {
	informer := c.cidrs.Informer()
	add := func(obj any) {
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
			c.queue.Soon(key)
		}
	}
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: add, UpdateFunc: func(_, obj any) { add(obj) }})
	if err != nil {
		return fmt.Errorf("watch service CIDRs: %w", err)
	}
	defer informer.RemoveEventHandler(registration)
	return c.queue.Run(ctx, 1, c.sync, registration.HasSyncedChecker())
}

func (c *Controller) sync(ctx context.Context, name string) (time.Duration, error) {
	cidr, err := c.cidrs.Lister().Get(name)
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if cidr.DeletionTimestamp == nil {
		if !slices.Contains(cidr.Finalizers, Finalizer) {
			return 0, c.setFinalizers(ctx, cidr, append(slices.Clone(cidr.Finalizers), Finalizer))
		}
		return 0, c.say(ctx, cidr, metav1.ConditionTrue, "", "services may have addresses of this block")
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
		return recheck, c.say(ctx, cidr, metav1.ConditionFalse, networkingv1.ServiceCIDRReasonTerminating, "address "+used+" is in use, and in no other ServiceCIDR")
	}
	if err := c.say(ctx, cidr, metav1.ConditionFalse, networkingv1.ServiceCIDRReasonTerminating, "no address of this block is in use"); err != nil {
		return 0, err
	}
	if wait := time.Until(cidr.DeletionTimestamp.Add(grace)); wait > 0 {
		return wait, nil
	}
	return 0, c.release(ctx, cidr)
}

// release lets a ServiceCIDR that is being deleted go.
func (c *Controller) release(ctx context.Context, cidr *networkingv1.ServiceCIDR) error {
	return c.setFinalizers(ctx, cidr, slices.DeleteFunc(slices.Clone(cidr.Finalizers), func(f string) bool { return f == Finalizer }))
}

func (c *Controller) setFinalizers(ctx context.Context, cidr *networkingv1.ServiceCIDR, finalizers []string) error {
	cidr = cidr.DeepCopy()
	cidr.Finalizers = finalizers
	_, err := c.client.NetworkingV1().ServiceCIDRs().Update(ctx, cidr, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// say sets the condition Ready unless its status is what it should be.
func (c *Controller) say(ctx context.Context, cidr *networkingv1.ServiceCIDR, status metav1.ConditionStatus, reason, message string) error {
	if is := meta.FindStatusCondition(cidr.Status.Conditions, networkingv1.ServiceCIDRConditionReady); is != nil && is.Status == status {
		return nil
	}
	apply := networkingv1ac.ServiceCIDR(cidr.Name).WithStatus(networkingv1ac.ServiceCIDRStatus().WithConditions(
		metav1ac.Condition().WithType(networkingv1.ServiceCIDRConditionReady).WithStatus(status).WithReason(reason).WithMessage(message).
			WithLastTransitionTime(metav1.Now())))
	_, err := c.client.NetworkingV1().ServiceCIDRs().ApplyStatus(ctx, apply, metav1.ApplyOptions{FieldManager: Name, Force: true})
	return err
}

// orphan is an address in use that would be in no ServiceCIDR without this one; empty if there is none.
func (c *Controller) orphan(ctx context.Context, cidr *networkingv1.ServiceCIDR) (string, error) {
	all, err := c.cidrs.Lister().List(labels.Everything())
	if err != nil {
		return "", err
	}
	var others []netip.Prefix
	for _, other := range all {
		if other.Name != cidr.Name && other.DeletionTimestamp == nil {
			others = append(others, prefixes(other)...)
		}
	}
	own := prefixes(cidr)
	addresses, err := c.client.NetworkingV1().IPAddresses().List(ctx, metav1.ListOptions{})
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
