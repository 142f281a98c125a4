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

// addBootstrapHooks makes the objects that every cluster has, under kube-apiserver's names where it has the same hook: /readyz shows them.
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

// runHook lets an error of a hook end the start, with the hook red in /readyz: returned to the Kubernetes libraries it would end the process.
// Refusals of policies, webhooks and quotas do not: whoever made those can take them away only from a server that runs. The hook is then
// tried again in the background.
func (p *plane) runHook(ctx context.Context, name string, hook func(context.Context) error) {
	err := hook(ctx)
	switch {
	case err == nil:
	case refused(err) && !p.damaged():
		utilruntime.HandleErrorWithContext(ctx, err, "The server's own write is refused and will be tried again", "hook", name)
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
			utilruntime.HandleErrorWithContext(ctx, err, "The server's own write is refused and will be tried again")
		}
		return err == nil, nil
	})
}

// keepTrust tells extension API servers whom to trust, once and then in the background.
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

// keepFlowControl ensures the objects of API priority and fairness, once and then in the background.
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

// bootstrapPolicy is what roles and bindings there are from the start. The aggregated roles have their rules at once if there is a
// controller that would fill them in.
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
