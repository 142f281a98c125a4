package clusterroleaggregation

import (
	"context"
	"fmt"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	rbacapply "k8s.io/client-go/applyconfigurations/rbac/v1"
	rbacinformers "k8s.io/client-go/informers/rbac/v1"
	"k8s.io/client-go/kubernetes"
	rbaclisters "k8s.io/client-go/listers/rbac/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/kinproc/kinproc/server/internal/auth/rbacauthorizer"
	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

// Name is the name of the controller and of the field manager that applies the rules, as in
// kube-controller-manager.
const Name = "clusterrole-aggregation-controller"

// Controller keeps the rules of aggregated cluster roles up to date.
type Controller struct {
	client   kubernetes.Interface
	informer cache.SharedIndexInformer
	lister   rbaclisters.ClusterRoleLister
	queue    *loop.Queue
}

// New returns a controller. The caller starts the informer.
func New(client kubernetes.Interface, roles rbacinformers.ClusterRoleInformer) *Controller {
	return &Controller{client: client, informer: roles.Informer(), lister: roles.Lister()}
}

// Run keeps the rules up to date until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	c.queue = loop.New(Name)
	// Any change of a role may affect any aggregated role.
	registration, err := c.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { c.enqueueAll(ctx) },
		UpdateFunc: func(any, any) { c.enqueueAll(ctx) },
		DeleteFunc: func(any) { c.enqueueAll(ctx) },
	})
	if err != nil {
		return fmt.Errorf("watch cluster roles: %w", err)
	}
	defer func() {
		if err := c.informer.RemoveEventHandler(registration); err != nil {
			klog.FromContext(ctx).Error(err, "Failed to stop watching cluster roles")
		}
	}()
	if !cache.WaitFor(ctx, "", registration.HasSyncedChecker()) {
		return nil
	}
	// Handlers that ran before the informer had synced saw only some of the roles.
	c.enqueueAll(ctx)
	return c.queue.Run(ctx, 1, c.sync)
}

func (c *Controller) enqueueAll(ctx context.Context) {
	all, err := c.lister.List(labels.Everything())
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to list cluster roles")
		return
	}
	for _, role := range all {
		if role.AggregationRule != nil {
			c.queue.Add(role.Name)
		}
	}
}

func (c *Controller) sync(ctx context.Context, name string) (time.Duration, error) {
	role, err := c.lister.Get(name)
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("get: %w", err)
	}
	if role.AggregationRule == nil {
		return 0, nil
	}
	all, err := c.lister.List(labels.Everything())
	if err != nil {
		return 0, fmt.Errorf("list: %w", err)
	}
	rules, err := rbacauthorizer.Aggregate(role, all)
	if err != nil {
		return 0, fmt.Errorf("read the aggregation rule: %w", err)
	}
	if equality.Semantic.DeepEqual(rules, role.Rules) {
		return 0, nil
	}
	_, err = c.client.RbacV1().ClusterRoles().Apply(ctx, application(role, rules),
		metav1.ApplyOptions{FieldManager: Name, Force: true})
	if err = loop.IgnoreChanged(err); err != nil {
		return 0, fmt.Errorf("apply %d rules: %w", len(rules), err)
	}
	return 0, nil
}

func application(
	of *rbacv1.ClusterRole, rules []rbacv1.PolicyRule,
) *rbacapply.ClusterRoleApplyConfiguration {
	// Without the UID, applying would bring back a role that has just been deleted.
	role := rbacapply.ClusterRole(of.Name).WithUID(of.UID)
	// Not nil, so that applying no rules removes the existing ones.
	role.Rules = []rbacapply.PolicyRuleApplyConfiguration{}
	for _, rule := range rules {
		role.Rules = append(role.Rules, rbacapply.PolicyRuleApplyConfiguration{
			Verbs:           rule.Verbs,
			APIGroups:       rule.APIGroups,
			Resources:       rule.Resources,
			ResourceNames:   rule.ResourceNames,
			NonResourceURLs: rule.NonResourceURLs,
		})
	}
	return role
}
