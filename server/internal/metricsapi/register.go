package metricsapi

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorclientset "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	apiregistrationlisters "k8s.io/kube-aggregator/pkg/client/listers/apiregistration/v1"

	"github.com/kinproc/kinproc/server/internal/requests/epoch"
	"github.com/kinproc/kinproc/server/internal/simulated"
)

// The group versions that are served.
var (
	resourceMetrics = schema.GroupVersion{Group: "metrics.k8s.io", Version: "v1beta1"}
	customMetrics   = schema.GroupVersion{Group: "custom.metrics.k8s.io", Version: "v1beta2"}
	externalMetrics = schema.GroupVersion{Group: "external.metrics.k8s.io", Version: "v1beta1"}
)

// The priorities of the APIServices, as metrics-server's manifest has them.
const groupPriority, versionPriority = 100, 100

// retry is the time between two attempts to register the APIs.
const retry = time.Second

// resetPoll is how often to look whether a reset is over. It takes some milliseconds.
const resetPoll = 10 * time.Millisecond

// Registration writes the objects by which clients find the APIs.
type Registration struct {
	// Config is an administrator's.
	Config *rest.Config
	// APIServices is the informer of them, which runs.
	APIServices cache.SharedIndexInformer
}

// Register writes the objects that are missing. What others wrote stays, and what they delete stays
// away until the next start. But an APIService that goes by a reset of the control plane comes
// back. Register returns when ctx ends.
func (r Registration) Register(ctx context.Context) {
	c, err := r.clients()
	if err != nil {
		utilruntime.HandleErrorWithContext(ctx, err, "Registering the metrics APIs failed")
		return
	}
	deleted := make(chan struct{}, 1)
	handler, err := r.APIServices.AddEventHandler(cache.ResourceEventHandlerFuncs{
		DeleteFunc: func(any) {
			select {
			case deleted <- struct{}{}:
			default:
			}
		},
	})
	if err != nil {
		utilruntime.HandleErrorWithContext(ctx, err, "Watching APIServices failed")
		return
	}
	// fails only for a handler of another informer
	defer func() { _ = r.APIServices.RemoveEventHandler(handler) }()
	for ctx.Err() == nil {
		pass := epoch.Begin(ctx)
		until(ctx, "Registering the metrics APIs failed, trying again", c, register)
		for again := false; ctx.Err() == nil && !again; {
			select {
			case <-ctx.Done():
			case <-deleted:
				again = wasReset(pass, c)
			}
		}
	}
}

// wasReset reports whether the control plane was reset since a pass began. A reset that is going on
// refuses the requests of the pass, and deletes objects before it counts as one.
func wasReset(pass context.Context, c clients) bool {
	since := epoch.Of(pass)
	for pass.Err() == nil && !since.Stale() {
		_, err := c.kubernetes.CoreV1().Services(serviceNamespace).Get(pass, serviceName,
			metav1.GetOptions{})
		if !apierrors.IsConflict(err) {
			break
		}
		select {
		case <-pass.Done():
		case <-time.After(resetPoll):
		}
	}
	return since.Stale()
}

// Remove deletes the APIServices of an earlier start that served metrics. Clients could not
// discover all resources otherwise.
func (r Registration) Remove(ctx context.Context) {
	const failed = "Removing the metrics APIs failed, trying again"
	c, err := r.clients()
	if err != nil {
		utilruntime.HandleErrorWithContext(ctx, err, failed)
		return
	}
	until(ctx, failed, c, remove)
}

// until tries until it has succeeded or ctx ends.
func until(
	ctx context.Context, failed string, c clients, do func(context.Context, clients) error,
) {
	for {
		err := do(epoch.Begin(ctx), c)
		if err == nil || ctx.Err() != nil {
			return
		}
		utilruntime.HandleErrorWithContext(ctx, err, failed)
		select {
		case <-ctx.Done():
			return
		case <-time.After(retry):
		}
	}
}

type clients struct {
	kubernetes kubernetes.Interface
	aggregator aggregatorclientset.Interface
}

func (r Registration) clients() (c clients, err error) {
	if c.kubernetes, err = kubernetes.NewForConfig(r.Config); err != nil {
		return c, err
	}
	config := rest.CopyConfig(r.Config)
	config.ContentConfig = rest.ContentConfig{} // APIServices are JSON only
	c.aggregator, err = aggregatorclientset.NewForConfig(config)
	return c, err
}

// own are the labels of the objects that Register writes.
func own() map[string]string { return map[string]string{simulated.Label: "true"} }

func register(ctx context.Context, c clients) error {
	_, err := c.kubernetes.CoreV1().Services(serviceNamespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: serviceName, Labels: own()},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeExternalName, ExternalName: externalName,
		},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("service %s: %w", serviceName, err)
	}
	_, err = c.kubernetes.RbacV1().ClusterRoles().Create(ctx, reader(), metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("cluster role %s: %w", reader().Name, err)
	}
	for _, gv := range []schema.GroupVersion{resourceMetrics, customMetrics, externalMetrics} {
		if err := registerVersion(ctx, c, gv); err != nil {
			return fmt.Errorf("APIService of %s: %w", gv, err)
		}
	}
	return nil
}

// reader returns the cluster role of metrics-server's manifest that lets viewers see metrics.
func reader() *rbacv1.ClusterRole {
	const aggregate = "rbac.authorization.k8s.io/aggregate-to-"
	r := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "system:aggregated-metrics-reader", Labels: own()},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{resourceMetrics.Group}, Resources: []string{"pods", "nodes"},
			Verbs: []string{"get", "list", "watch"},
		}},
	}
	for _, role := range []string{"admin", "edit", "view"} {
		r.Labels[aggregate+role] = "true"
	}
	return r
}

func registerVersion(ctx context.Context, c clients, gv schema.GroupVersion) error {
	port := int32(servicePort)
	wanted := &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: gv.Version + "." + gv.Group, Labels: own()},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: gv.Group, Version: gv.Version,
			GroupPriorityMinimum: groupPriority, VersionPriority: versionPriority,
			// As in metrics-server's manifest. Nobody else can be at the other end of the
			// connection, and so the APIService is good for each control plane that begins with a
			// snapshot of this one.
			InsecureSkipTLSVerify: true,
			Service: &apiregistrationv1.ServiceReference{
				Namespace: serviceNamespace, Name: serviceName, Port: &port,
			},
		},
	}
	_, err := c.aggregator.ApiregistrationV1().APIServices().Create(ctx, wanted,
		metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil // it is ours, or that of somebody who replaces us
	}
	return err
}

// isOwn reports whether an APIService leads to this package. Installing another server with kubectl
// apply changes the spec, but not the labels.
func isOwn(s *apiregistrationv1.APIService) bool {
	r := s.Spec.Service
	return s.Labels[simulated.Label] == "true" && r != nil && r.Namespace == serviceNamespace &&
		r.Name == serviceName
}

// Registered reports whether there are APIServices of this package.
func Registered(services apiregistrationlisters.APIServiceLister) bool {
	list, err := services.List(labels.SelectorFromSet(own()))
	return err == nil && slices.ContainsFunc(list, isOwn)
}

func remove(ctx context.Context, c clients) error {
	services := c.aggregator.ApiregistrationV1().APIServices()
	list, err := services.List(ctx, metav1.ListOptions{
		LabelSelector: labels.Set(own()).String(),
	})
	if err != nil {
		return err
	}
	for i := range list.Items {
		s := &list.Items[i]
		if !isOwn(s) {
			continue
		}
		err := services.Delete(ctx, s.Name, metav1.DeleteOptions{
			Preconditions: metav1.NewUIDPreconditions(string(s.UID)),
		})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}
