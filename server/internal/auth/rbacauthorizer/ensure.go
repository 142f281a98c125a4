package rbacauthorizer

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
	"k8s.io/component-helpers/auth/rbac/reconciliation"
)

// parallel is the number of objects that [Ensure] writes concurrently: enough to keep etcd busy,
// but few enough not to slow down other parts of the start.
const parallel = 16

// Ensure creates the objects of the policy that do not exist, and adds missing rules and subjects
// to those that do. Like kube-apiserver, it removes nothing, and does not change objects with the
// annotation rbac.authorization.kubernetes.io/autoupdate=false. It lists each kind once, so a start
// at which nothing is missing costs four requests.
func Ensure(ctx context.Context, client kubernetes.Interface, p *Policy) error {
	found, err := find(ctx, client)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	reconcile := func(obj metav1.Object, run func() error) {
		g.Go(func() error {
			// Several servers that share an etcd may start at the same time.
			if err := retry.RetryOnConflict(retry.DefaultBackoff, run); err != nil {
				return fmt.Errorf("reconcile %T %s: %w", obj, keyOf(obj), err)
			}
			return nil
		})
	}
	api := client.RbacV1()
	for _, r := range p.ClusterRoles {
		there := found.clusterRoles[keyOf(r)]
		if there != nil && r.AggregationRule != nil {
			// The rules of an existing aggregating role are managed by the aggregation controller.
			r = r.DeepCopy()
			r.Rules = nil
		}
		client := newObjects(ctx, api.ClusterRoles(), there, wrapClusterRole)
		reconcile(r, func() error { return reconcileRole(client, wrapClusterRole(r)) })
	}
	for _, b := range p.ClusterRoleBindings {
		there := found.clusterRoleBindings[keyOf(b)]
		client := newObjects(ctx, api.ClusterRoleBindings(), there, wrapClusterRoleBinding)
		reconcile(b, func() error { return reconcileBinding(client, wrapClusterRoleBinding(b)) })
	}
	for _, namespace := range missingNamespaces(p, found) {
		if err := ensureNamespace(ctx, client, namespace); err != nil {
			return joinWait(g, err)
		}
	}
	for _, r := range p.Roles {
		there := found.roles[keyOf(r)]
		client := newObjects(ctx, api.Roles(r.Namespace), there, wrapRole)
		reconcile(r, func() error { return reconcileRole(client, wrapRole(r)) })
	}
	for _, b := range p.RoleBindings {
		there := found.roleBindings[keyOf(b)]
		client := newObjects(ctx, api.RoleBindings(b.Namespace), there, wrapRoleBinding)
		reconcile(b, func() error { return reconcileBinding(client, wrapRoleBinding(b)) })
	}
	return g.Wait()
}

// joinWait waits for the group and returns its error, or err if it has none.
func joinWait(g *errgroup.Group, err error) error {
	if first := g.Wait(); first != nil {
		return first
	}
	return err
}

func reconcileRole(client reconciliation.RuleOwnerModifier, role reconciliation.RuleOwner) error {
	_, err := (&reconciliation.ReconcileRoleOptions{Role: role, Client: client, Confirm: true}).Run()
	return err
}

func reconcileBinding(
	client reconciliation.RoleBindingModifier, binding reconciliation.RoleBinding,
) error {
	_, err := (&reconciliation.ReconcileRoleBindingOptions{
		RoleBinding: binding,
		Client:      client,
		Confirm:     true,
	}).Run()
	return err
}

func wrapClusterRole(r *rbacv1.ClusterRole) reconciliation.RuleOwner {
	return reconciliation.ClusterRoleRuleOwner{ClusterRole: r}
}

func wrapRole(r *rbacv1.Role) reconciliation.RuleOwner {
	return reconciliation.RoleRuleOwner{Role: r}
}

func wrapClusterRoleBinding(b *rbacv1.ClusterRoleBinding) reconciliation.RoleBinding {
	return reconciliation.ClusterRoleBindingAdapter{ClusterRoleBinding: b}
}

func wrapRoleBinding(b *rbacv1.RoleBinding) reconciliation.RoleBinding {
	return reconciliation.RoleBindingAdapter{RoleBinding: b}
}

// found holds the existing objects, keyed by [keyOf].
type found struct {
	clusterRoles        map[string]*rbacv1.ClusterRole
	clusterRoleBindings map[string]*rbacv1.ClusterRoleBinding
	roles               map[string]*rbacv1.Role
	roleBindings        map[string]*rbacv1.RoleBinding
}

func find(ctx context.Context, client kubernetes.Interface) (found, error) {
	var f found
	g, ctx := errgroup.WithContext(ctx)
	api := client.RbacV1()
	g.Go(func() error {
		list, err := api.ClusterRoles().List(ctx, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("list cluster roles: %w", err)
		}
		f.clusterRoles = byKey(list.Items)
		return nil
	})
	g.Go(func() error {
		list, err := api.ClusterRoleBindings().List(ctx, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("list cluster role bindings: %w", err)
		}
		f.clusterRoleBindings = byKey(list.Items)
		return nil
	})
	g.Go(func() error {
		list, err := api.Roles("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("list roles: %w", err)
		}
		f.roles = byKey(list.Items)
		return nil
	})
	g.Go(func() error {
		list, err := api.RoleBindings("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("list role bindings: %w", err)
		}
		f.roleBindings = byKey(list.Items)
		return nil
	})
	return f, g.Wait()
}

func byKey[T any, P interface {
	*T
	metav1.Object
}](items []T) map[string]P {
	m := make(map[string]P, len(items))
	for i := range items {
		m[keyOf(P(&items[i]))] = P(&items[i])
	}
	return m
}

func keyOf(o metav1.Object) string {
	if o.GetNamespace() == "" {
		return o.GetName()
	}
	return o.GetNamespace() + "/" + o.GetName()
}

// missingNamespaces returns the namespaces in which an object has to be created.
func missingNamespaces(p *Policy, f found) []string {
	seen := map[string]bool{}
	var names []string
	add := func(o metav1.Object, there bool) {
		if name := o.GetNamespace(); !there && !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	for _, r := range p.Roles {
		add(r, f.roles[keyOf(r)] != nil)
	}
	for _, b := range p.RoleBindings {
		add(b, f.roleBindings[keyOf(b)] != nil)
	}
	return names
}

func ensureNamespace(ctx context.Context, client kubernetes.Interface, name string) error {
	_, err := client.CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create namespace %s: %w", name, err)
	}
	return nil
}

// typedClient has the methods that client-go's clients of the four kinds have in common.
type typedClient[T any] interface {
	Get(ctx context.Context, name string, o metav1.GetOptions) (T, error)
	Create(ctx context.Context, obj T, o metav1.CreateOptions) (T, error)
	Update(ctx context.Context, obj T, o metav1.UpdateOptions) (T, error)
	Delete(ctx context.Context, name string, o metav1.DeleteOptions) error
}

// object is a pointer to one of the four types.
type object interface {
	comparable
	runtime.Object
}

// objects is a client for the reconciliation that uses previously listed objects: the first Get
// returns the listed object.
type objects[T object, O interface{ GetObject() runtime.Object }] struct {
	ctx    context.Context
	client typedClient[T]
	listed T
	asked  bool
	wrap   func(T) O
}

func newObjects[T object, O interface{ GetObject() runtime.Object }](
	ctx context.Context, client typedClient[T], listed T, wrap func(T) O,
) *objects[T, O] {
	return &objects[T, O]{ctx: ctx, client: client, listed: listed, wrap: wrap}
}

func (o *objects[T, O]) result(obj T, err error) (O, error) {
	if err != nil {
		var none O
		return none, err
	}
	return o.wrap(obj), nil
}

func (o *objects[T, O]) Get(_, name string) (O, error) {
	if o.asked {
		return o.result(o.client.Get(o.ctx, name, metav1.GetOptions{}))
	}
	o.asked = true
	if o.listed == *new(T) {
		return o.result(o.listed,
			apierrors.NewNotFound(schema.GroupResource{Group: rbacv1.GroupName}, name))
	}
	return o.result(o.listed, nil)
}

func (o *objects[T, O]) Create(in O) (O, error) {
	return o.result(o.client.Create(o.ctx, in.GetObject().(T), metav1.CreateOptions{}))
}

func (o *objects[T, O]) Update(in O) (O, error) {
	return o.result(o.client.Update(o.ctx, in.GetObject().(T), metav1.UpdateOptions{}))
}

func (o *objects[T, O]) Delete(_, name string, uid types.UID) error {
	return o.client.Delete(o.ctx, name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &uid},
	})
}
