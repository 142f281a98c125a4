package server

import (
	"context"
	"fmt"
	"slices"
	"time"

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

// addBootstrapHooks adds the hooks that create the objects every cluster has. They are listed by
// /readyz, so a hook that kube-apiserver has too gets the same name.
func (p *plane) addBootstrapHooks(generic *genericapiserver.Config) error {
	client, namespaces := p.self.client, p.informers.Core().V1().Namespaces().Lister()
	hooks := map[string]func(context.Context) error{
		"start-system-namespaces-controller": func(ctx context.Context) error { return p.keepNamespaces(ctx, client, namespaces) },
		"scheduling/bootstrap-system-priority-classes": func(ctx context.Context) error {
			return admission.EnsureSystemPriorityClasses(ctx, client)
		},
		"bootstrap-controller":                         func(ctx context.Context) error { return p.keepKubernetesService(ctx, client) },
		"start-cluster-authentication-info-controller": func(ctx context.Context) error { return p.keepTrust(ctx, client) },
		"priority-and-fairness-config-producer":        func(ctx context.Context) error { return p.keepFlowControl(ctx, client) },
		"rbac/bootstrap-roles":                         func(ctx context.Context) error { return p.ensureRoles(ctx, client) },
	}
	for name, hook := range hooks {
		err := generic.AddPostStartHook(name, func(hc genericapiserver.PostStartHookContext) error {
			done := make(chan struct{})
			if !p.tasks.run(func() { p.runHook(hc, name, hook); close(done) }) {
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

// runHook makes the start fail if a hook fails, with the hook failing in /readyz. Returning the
// error to the Kubernetes libraries would end the process instead.
//
// A write that a policy, webhook or quota refuses does not make the start fail, because the user
// can remove the policy, webhook or quota only while the server runs. The hook is then retried in
// the background.
func (p *plane) runHook(ctx context.Context, name string, hook func(context.Context) error) {
	err := hook(ctx)
	switch {
	case err == nil:
	case refused(err) && !p.damaged():
		utilruntime.HandleErrorWithContext(ctx, err, "The server's own write was refused and will be retried", "hook", name)
		p.tasks.run(func() { retryRefused(ctx, hook) })
	default:
		p.tasks.fail(fmt.Errorf("%s: %w", name, err))
		<-ctx.Done()
	}
}

const refusedInterval = 10 * time.Second

func retryRefused(ctx context.Context, hook func(context.Context) error) {
	_ = wait.PollUntilContextCancel(ctx, refusedInterval, false, func(ctx context.Context) (bool, error) {
		err := hook(ctx)
		if err != nil && ctx.Err() == nil {
			utilruntime.HandleErrorWithContext(ctx, err, "The server's own write was refused and will be retried")
		}
		return err == nil, nil
	})
}

// keepTrust publishes the authorities that extension API servers must trust, once and then in the
// background.
func (p *plane) keepTrust(ctx context.Context, client kubernetes.Interface) error {
	trust := clusterauthenticationtrust.Trust{ClientCA: p.access.clientCA, RequestHeader: p.access.requestHeader}
	controller := clusterauthenticationtrust.New(client, trust, len(p.options.EtcdServers) > 0)
	if err := controller.Ensure(ctx); err != nil {
		return err
	}
	p.tasks.run(func() {
		if err := controller.Run(ctx); err != nil {
			p.tasks.fail(err)
		}
	})
	return nil
}

// keepFlowControl ensures the objects of API Priority and Fairness, once and then in the
// background.
func (p *plane) keepFlowControl(ctx context.Context, client kubernetes.Interface) error {
	if err := flowcontrolbootstrap.Ensure(ctx, client); err != nil {
		return err
	}
	p.tasks.run(func() { flowcontrolbootstrap.Run(ctx, client) })
	return nil
}

func (p *plane) ensureRoles(ctx context.Context, client kubernetes.Interface) error {
	policy, err := p.bootstrapPolicy()
	if err != nil {
		return err
	}
	return rbacauthorizer.Ensure(ctx, client, policy)
}

// bootstrapPolicy returns the bootstrap roles and bindings. The aggregated roles have their rules
// from the start, unless the controller that would fill them in is disabled; then they are empty,
// as in kube-apiserver.
func (p *plane) bootstrapPolicy() (*rbacauthorizer.Policy, error) {
	policy := rbacauthorizer.Bootstrap()
	enabled, err := controllers.Enabled(p.options.Controllers)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(enabled, clusterroleaggregation.Name) {
		policy.Unaggregate()
	}
	return policy, nil
}
