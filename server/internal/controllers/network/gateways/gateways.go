// Package gateways gives Gateways of kinproc's class an address, and says that they are accepted,
// as an implementation of the Gateway API does. Nothing listens there. The kinds of the Gateway API
// are custom resources, which users install.
package gateways

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

const (
	// Name is the name of the loop.
	Name = "gateway-address-controller"
	// Class is the name of the GatewayClass that the loop makes when a Gateway names it.
	Class = "kinproc"
	// Controller is what a GatewayClass names that this loop is for.
	Controller = "kinproc.dev/gateway"
)

var (
	version  = schema.GroupVersion{Group: "gateway.networking.k8s.io", Version: "v1"}
	gateways = version.WithResource("gateways")
	classes  = version.WithResource("gatewayclasses")
)

// maxListeners is how many listeners a Gateway may have.
const maxListeners = 64

// Loop is the loop of Gateways, which all have the same address. It is off if that is invalid.
func Loop(address netip.Addr) loop.Loop {
	return loop.Loop{
		Name:     Name,
		Purpose:  "gives Gateways of the class kinproc an address",
		Workload: true, Idle: !address.IsValid(),
		Begin: func(l *loop.Controller) loop.Work { return begin(l, address) },
		After: []schema.GroupResource{gateways.GroupResource(), classes.GroupResource()},
	}
}

type controller struct {
	*loop.Controller
	client            dynamic.Interface
	gateways, classes cache.SharedIndexInformer
	address           string
}

func begin(l *loop.Controller, address netip.Addr) loop.Work {
	return loop.Work{Run: func(ctx context.Context) error {
		config := rest.CopyConfig(l.Config)
		config.ContentConfig = rest.ContentConfig{} // custom resources are JSON
		client, err := dynamic.NewForConfig(config)
		if err != nil {
			return err
		}
		factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
		c := &controller{
			Controller: l, client: client, address: address.String(),
			gateways: factory.ForResource(gateways).Informer(),
			classes:  factory.ForResource(classes).Informer(),
		}
		if err := errors.Join(
			c.Watch(loop.Keys(c.gateways, c.Enqueue)),
			c.Watch(loop.Keys(c.classes, c.classChanged)),
		); err != nil {
			return err
		}
		factory.Start(ctx.Done())
		defer factory.Shutdown()
		return c.Queue.Run(ctx, 1, c.sync, c.gateways.HasSyncedChecker(), c.classes.HasSyncedChecker())
	}}
}

// classChanged adds a class, whose key has no namespace, and its Gateways.
func (c *controller) classChanged(name string) {
	c.Enqueue(name)
	for _, obj := range c.gateways.GetStore().List() {
		if g := obj.(*unstructured.Unstructured); classOf(g) == name {
			c.Enqueue(loop.Key(g))
		}
	}
}

func classOf(gateway *unstructured.Unstructured) string {
	name, _, _ := unstructured.NestedString(gateway.Object, "spec", "gatewayClassName")
	return name
}

func controllerOf(class *unstructured.Unstructured) string {
	name, _, _ := unstructured.NestedString(class.Object, "spec", "controllerName")
	return name
}

func (c *controller) sync(ctx context.Context, key string) (time.Duration, error) {
	if !strings.Contains(key, "/") {
		return 0, c.syncClass(ctx, key)
	}
	g := loop.Get[unstructured.Unstructured](c.gateways, key)
	if g == nil || g.GetDeletionTimestamp() != nil {
		return 0, nil
	}
	class := loop.Get[unstructured.Unstructured](c.classes, classOf(g))
	if class == nil {
		if classOf(g) != Class {
			return 0, nil
		}
		return 0, c.makeClass(ctx) // which adds the Gateway again
	}
	if controllerOf(class) != Controller {
		return 0, nil
	}
	return 0, c.update(ctx, gateways, g, c.status(g))
}

func (c *controller) makeClass(ctx context.Context) error {
	_, err := c.client.Resource(classes).Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": version.String(), "kind": "GatewayClass",
		"metadata": map[string]any{"name": Class},
		"spec":     map[string]any{"controllerName": Controller},
	}}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func (c *controller) syncClass(ctx context.Context, name string) error {
	class := loop.Get[unstructured.Unstructured](c.classes, name)
	if class == nil || controllerOf(class) != Controller {
		return nil
	}
	status := nested(class.Object, "status")
	setConditions(status, class.GetGeneration(), "Accepted")
	return c.update(ctx, classes, class, status)
}

// status returns the status of a Gateway that works.
func (c *controller) status(g *unstructured.Unstructured) map[string]any {
	status, generation := nested(g.Object, "status"), g.GetGeneration()
	status["addresses"] = []any{map[string]any{"type": "IPAddress", "value": c.address}}
	setConditions(status, generation, "Accepted", "Programmed")
	old, _, _ := unstructured.NestedSlice(status, "listeners")
	specs, _, _ := unstructured.NestedSlice(g.Object, "spec", "listeners")
	listeners := []any{}
	for _, spec := range specs[:min(len(specs), maxListeners)] {
		name := nameOf(spec)
		listener := map[string]any{
			"name": name, "attachedRoutes": int64(0), "supportedKinds": []any{},
		}
		for _, o := range old {
			if o, ok := o.(map[string]any); ok && nameOf(o) == name {
				listener = o
			}
		}
		setConditions(listener, generation, "Accepted", "Programmed", "ResolvedRefs")
		listeners = append(listeners, listener)
	}
	status["listeners"] = listeners
	return status
}

func nameOf(listener any) any {
	l, _ := listener.(map[string]any)
	name, _ := l["name"].(string)
	return name
}

// nested returns a copy of a field that is an object.
func nested(object map[string]any, field string) map[string]any {
	found, ok, err := unstructured.NestedMap(object, field)
	if !ok || err != nil {
		return map[string]any{}
	}
	return found
}

// setConditions makes conditions true. Those that are true already keep their transition time.
func setConditions(status map[string]any, generation int64, types ...string) {
	var now struct {
		Conditions []metav1.Condition `json:"conditions"`
	}
	converter := runtime.DefaultUnstructuredConverter
	if err := converter.FromUnstructured(status, &now); err != nil {
		now.Conditions = nil // the wrong ones are replaced
	}
	for _, t := range types {
		meta.SetStatusCondition(&now.Conditions, metav1.Condition{
			Type: t, Status: metav1.ConditionTrue, Reason: t, ObservedGeneration: generation,
			Message: "kinproc simulates it: nothing listens",
		})
	}
	if list, err := converter.ToUnstructured(&now); err == nil {
		status["conditions"] = list["conditions"]
	}
}

func (c *controller) update(
	ctx context.Context, of schema.GroupVersionResource, object *unstructured.Unstructured,
	status map[string]any,
) error {
	if equality.Semantic.DeepEqual(nested(object.Object, "status"), status) {
		return nil
	}
	updated := object.DeepCopy()
	updated.Object["status"] = status
	_, err := c.client.Resource(of).Namespace(object.GetNamespace()).UpdateStatus(ctx, updated,
		metav1.UpdateOptions{})
	return loop.IgnoreChanged(err)
}
