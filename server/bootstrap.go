package server

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server/internal/admission"
	"github.com/kinproc/kinproc/server/internal/auth/rbacauthorizer"
	"github.com/kinproc/kinproc/server/internal/controllers"
	"github.com/kinproc/kinproc/server/internal/controllers/clusterauthenticationtrust"
	"github.com/kinproc/kinproc/server/internal/controllers/clusterroleaggregation"
	"github.com/kinproc/kinproc/server/internal/controllers/flowcontrolbootstrap"
)

// bootstrapHooks make the objects that every cluster has, under kube-apiserver's names where it has the same hook: /readyz shows them.
func bootstrapHooks(client kubernetes.Interface) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"start-system-namespaces-controller": func(ctx context.Context) error { return ensureNamespaces(ctx, client) },
		"scheduling/bootstrap-system-priority-classes": func(ctx context.Context) error {
			return admission.EnsureSystemPriorityClasses(ctx, client)
		},
	}
}

func (s *Server) addBootstrapHooks(generic *genericapiserver.Config, client kubernetes.Interface) error {
	hooks := bootstrapHooks(client)
	hooks["bootstrap-controller"] = func(ctx context.Context) error { return s.keepKubernetesService(ctx, client) }
	hooks["start-cluster-authentication-info-controller"] = func(ctx context.Context) error { return s.keepTrust(ctx, client) }
	hooks["priority-and-fairness-config-producer"] = func(ctx context.Context) error { return s.keepFlowControl(ctx, client) }
	hooks["rbac/bootstrap-roles"] = func(ctx context.Context) error { return s.ensureRoles(ctx, client) }
	for name, hook := range hooks {
		err := generic.AddPostStartHook(name, func(hc genericapiserver.PostStartHookContext) error {
			done := make(chan struct{})
			if !s.run(func() { s.runHook(hc, name, hook); close(done) }) {
				return nil
			}
			<-done
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// runHook lets an error of a hook end the start, with the hook red in /readyz: returned to the Kubernetes libraries it would end the process.
// Refusals of policies, webhooks and quotas do not: whoever made those can take them away only from a server that runs. The hook is then
// tried again in the background.
func (s *Server) runHook(ctx context.Context, name string, hook func(context.Context) error) {
	err := hook(ctx)
	switch {
	case err == nil:
	case refused(err):
		utilruntime.HandleErrorWithContext(ctx, err, "The server's own write is refused and will be tried again", "hook", name)
		s.run(func() { retryRefused(ctx, hook) })
	default:
		s.fail(fmt.Errorf("%s: %w", name, err))
		<-ctx.Done()
	}
}

const refusedInterval = 10 * time.Second

func retryRefused(ctx context.Context, hook func(context.Context) error) {
	_ = wait.PollUntilContextCancel(ctx, refusedInterval, false, func(ctx context.Context) (bool, error) {
		err := hook(ctx)
		if err != nil && ctx.Err() == nil {
			utilruntime.HandleErrorWithContext(ctx, err, "The server's own write is refused and will be tried again")
		}
		return err == nil, nil
	})
}

// keepTrust tells extension API servers whom to trust, once and then in the background.
func (s *Server) keepTrust(ctx context.Context, client kubernetes.Interface) error {
	trust := clusterauthenticationtrust.Trust{ClientCA: s.access.clientCA, RequestHeader: s.access.requestHeader}
	controller := clusterauthenticationtrust.New(client, trust, len(s.options.EtcdServers) > 0)
	if err := controller.Ensure(ctx); err != nil {
		return err
	}
	s.run(func() {
		if err := controller.Run(ctx); err != nil {
			s.fail(err)
		}
	})
	return nil
}

// keepFlowControl ensures the objects of API priority and fairness, once and then in the background.
func (s *Server) keepFlowControl(ctx context.Context, client kubernetes.Interface) error {
	if err := flowcontrolbootstrap.Ensure(ctx, client); err != nil {
		return err
	}
	s.run(func() { flowcontrolbootstrap.Run(ctx, client) })
	return nil
}

func (s *Server) ensureRoles(ctx context.Context, client kubernetes.Interface) error {
	policy, err := s.bootstrapPolicy()
	if err != nil {
		return err
	}
	return rbacauthorizer.Ensure(ctx, client, policy)
}

// bootstrapPolicy is what roles and bindings there are from the start. The aggregated roles have their rules at once if there is a
// controller that would fill them in.
func (s *Server) bootstrapPolicy() (*rbacauthorizer.Policy, error) {
	policy := rbacauthorizer.Bootstrap()
	enabled, err := controllers.Enabled(s.options.Controllers)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(enabled, clusterroleaggregation.Name) {
		policy.Unaggregate()
	}
	return policy, nil
}

func systemNamespaces() []string {
	return []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease}
}

func ensureNamespaces(ctx context.Context, client kubernetes.Interface) error {
	for _, name := range systemNamespaces() {
		_, err := client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			_, err = client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		}
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("namespace %s: %w", name, err)
		}
	}
	return nil
}
