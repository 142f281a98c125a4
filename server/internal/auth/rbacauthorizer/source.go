package rbacauthorizer

import (
	"context"
	"sync"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	rbacinformers "k8s.io/client-go/informers/rbac/v1"
	rbacclient "k8s.io/client-go/kubernetes/typed/rbac/v1"
	rbaclisters "k8s.io/client-go/listers/rbac/v1"
	"k8s.io/client-go/tools/cache"
)

// Source reads roles and bindings. The returned objects are shared and must not be modified.
type Source interface {
	ClusterRoleBindings(ctx context.Context) ([]*rbacv1.ClusterRoleBinding, error)
	RoleBindings(ctx context.Context, namespace string) ([]*rbacv1.RoleBinding, error)
	ClusterRole(ctx context.Context, name string) (*rbacv1.ClusterRole, error)
	Role(ctx context.Context, namespace, name string) (*rbacv1.Role, error)
}

// FromClient returns a Source that reads with the given client. The client's user must be
// authorized without this authorizer.
func FromClient(client rbacclient.RbacV1Interface) Source { return clientSource{client} }

type clientSource struct{ client rbacclient.RbacV1Interface }

func (s clientSource) ClusterRoleBindings(
	ctx context.Context,
) ([]*rbacv1.ClusterRoleBinding, error) {
	list, err := s.client.ClusterRoleBindings().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return pointers(list.Items), nil
}

func (s clientSource) RoleBindings(
	ctx context.Context, namespace string,
) ([]*rbacv1.RoleBinding, error) {
	list, err := s.client.RoleBindings(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return pointers(list.Items), nil
}

func (s clientSource) ClusterRole(ctx context.Context, name string) (*rbacv1.ClusterRole, error) {
	return s.client.ClusterRoles().Get(ctx, name, metav1.GetOptions{})
}

func (s clientSource) Role(ctx context.Context, namespace, name string) (*rbacv1.Role, error) {
	return s.client.Roles(namespace).Get(ctx, name, metav1.GetOptions{})
}

func pointers[T any](items []T) []*T {
	out := make([]*T, len(items))
	for i := range items {
		out[i] = &items[i]
	}
	return out
}

// FromInformers returns a Source that reads from informers, or from meanwhile until they have
// synced. If meanwhile is nil, roles and bindings may be missing until then.
func FromInformers(informers rbacinformers.Interface, meanwhile Source) Source {
	bindings, clusterBindings := informers.RoleBindings(), informers.ClusterRoleBindings()
	roles, clusterRoles := informers.Roles(), informers.ClusterRoles()
	return &informerSource{
		bindings:        bindings.Lister(),
		clusterBindings: clusterBindings.Lister(),
		roles:           roles.Lister(),
		clusterRoles:    clusterRoles.Lister(),
		synced: []cache.InformerSynced{
			clusterBindings.Informer().HasSynced, clusterRoles.Informer().HasSynced,
			bindings.Informer().HasSynced, roles.Informer().HasSynced,
		},
		meanwhile: meanwhile,
	}
}

// Lazily returns a Source that calls source when it is first read. If all requests come from
// members of system:masters, as in many tests, that never happens.
func Lazily(source func() Source) Source { return lazySource(sync.OnceValue(source)) }

type lazySource func() Source

func (s lazySource) ClusterRoleBindings(ctx context.Context) ([]*rbacv1.ClusterRoleBinding, error) {
	return s().ClusterRoleBindings(ctx)
}

func (s lazySource) RoleBindings(
	ctx context.Context, namespace string,
) ([]*rbacv1.RoleBinding, error) {
	return s().RoleBindings(ctx, namespace)
}

func (s lazySource) ClusterRole(ctx context.Context, name string) (*rbacv1.ClusterRole, error) {
	return s().ClusterRole(ctx, name)
}

func (s lazySource) Role(ctx context.Context, namespace, name string) (*rbacv1.Role, error) {
	return s().Role(ctx, namespace, name)
}

type informerSource struct {
	bindings        rbaclisters.RoleBindingLister
	clusterBindings rbaclisters.ClusterRoleBindingLister
	roles           rbaclisters.RoleLister
	clusterRoles    rbaclisters.ClusterRoleLister
	synced          []cache.InformerSynced
	meanwhile       Source
}

func (s *informerSource) notYet() bool {
	if s.meanwhile == nil {
		return false
	}
	for _, synced := range s.synced {
		if !synced() {
			return true
		}
	}
	return false
}

func (s *informerSource) ClusterRoleBindings(
	ctx context.Context,
) ([]*rbacv1.ClusterRoleBinding, error) {
	if s.notYet() {
		return s.meanwhile.ClusterRoleBindings(ctx)
	}
	return s.clusterBindings.List(labels.Everything())
}

func (s *informerSource) RoleBindings(
	ctx context.Context, namespace string,
) ([]*rbacv1.RoleBinding, error) {
	if s.notYet() {
		return s.meanwhile.RoleBindings(ctx, namespace)
	}
	return s.bindings.RoleBindings(namespace).List(labels.Everything())
}

func (s *informerSource) ClusterRole(
	ctx context.Context, name string,
) (*rbacv1.ClusterRole, error) {
	if s.notYet() {
		return s.meanwhile.ClusterRole(ctx, name)
	}
	return s.clusterRoles.Get(name)
}

func (s *informerSource) Role(ctx context.Context, namespace, name string) (*rbacv1.Role, error) {
	if s.notYet() {
		return s.meanwhile.Role(ctx, namespace, name)
	}
	return s.roles.Roles(namespace).Get(name)
}
