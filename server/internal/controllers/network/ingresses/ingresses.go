// Package ingresses gives Ingresses of kinproc's class an address, as an ingress controller does.
// Nothing listens there.
package ingresses

import (
	"context"
	"net/netip"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

const (
	// Name is the name of the loop.
	Name = "ingress-address-controller"
	// Class is the name of the IngressClass that the loop makes when an Ingress names it.
	Class = "kinproc"
	// Controller is what an IngressClass names that this loop is for.
	Controller = "kinproc.dev/ingress"
)

// classAnnotation names the class of an Ingress in the way that was common before the field.
const classAnnotation = "kubernetes.io/ingress.class"

// Loop is the loop of Ingresses, which all have the same address. It is off if that is invalid.
func Loop(address netip.Addr) loop.Loop {
	return loop.Loop{
		Name:     Name,
		Purpose:  "gives Ingresses of the class kinproc an address",
		Workload: true, Idle: !address.IsValid(),
		Begin: func(l *loop.Controller) loop.Work { return begin(l, address) },
		After: []schema.GroupResource{networkingv1.Resource("ingresses")},
	}
}

type controller struct {
	*loop.Controller
	ingresses, classes cache.SharedIndexInformer
	address            string
}

func begin(l *loop.Controller, address netip.Addr) loop.Work {
	c := &controller{
		Controller: l, ingresses: l.Informer(&networkingv1.Ingress{}),
		classes: l.Informer(&networkingv1.IngressClass{}), address: address.String(),
	}
	return loop.Work{Sync: c.sync, Watches: []loop.Watch{
		loop.Keys(c.ingresses, c.Enqueue),
		loop.On(c.classes, func(_, class *networkingv1.IngressClass) { c.classChanged(class) }),
	}}
}

func (c *controller) classChanged(class *networkingv1.IngressClass) {
	if class == nil {
		return // the Ingresses keep their address
	}
	for _, obj := range c.ingresses.GetStore().List() {
		if i := obj.(*networkingv1.Ingress); classOf(i) == class.Name {
			c.Enqueue(loop.Key(i))
		}
	}
}

func classOf(i *networkingv1.Ingress) string {
	if i.Spec.IngressClassName != nil {
		return *i.Spec.IngressClassName
	}
	return i.Annotations[classAnnotation]
}

func (c *controller) sync(ctx context.Context, key string) (time.Duration, error) {
	i := loop.Get[networkingv1.Ingress](c.ingresses, key)
	if i == nil || i.DeletionTimestamp != nil || classOf(i) == "" {
		return 0, nil
	}
	class := loop.Get[networkingv1.IngressClass](c.classes, classOf(i))
	if class == nil {
		if classOf(i) != Class {
			return 0, nil
		}
		if err := c.makeClass(ctx); err != nil {
			return 0, err
		}
	} else if class.Spec.Controller != Controller {
		return 0, nil
	}
	updated := i.DeepCopy()
	updated.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{IP: c.address}}
	if equality.Semantic.DeepEqual(i.Status, updated.Status) {
		return 0, nil
	}
	_, err := c.Client.NetworkingV1().Ingresses(i.Namespace).UpdateStatus(ctx, updated,
		metav1.UpdateOptions{})
	return 0, loop.IgnoreChanged(err)
}

func (c *controller) makeClass(ctx context.Context) error {
	_, err := c.Client.NetworkingV1().IngressClasses().Create(ctx, &networkingv1.IngressClass{
		ObjectMeta: metav1.ObjectMeta{Name: Class},
		Spec:       networkingv1.IngressClassSpec{Controller: Controller},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
