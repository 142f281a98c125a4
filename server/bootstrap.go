package server

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	genericfeatures "k8s.io/apiserver/pkg/features"
	genericapiserver "k8s.io/apiserver/pkg/server"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server/internal/admission"
	"github.com/kinproc/kinproc/server/internal/auth/rbacauthorizer"
	"github.com/kinproc/kinproc/server/internal/controllers"
	"github.com/kinproc/kinproc/server/internal/controllers/cluster/clusterroleaggregation"
	"github.com/kinproc/kinproc/server/internal/controllers/clusterauthenticationtrust"
	"github.com/kinproc/kinproc/server/internal/controllers/flowcontrolbootstrap"
	"github.com/kinproc/kinproc/server/internal/controllers/identitylease"
	"github.com/kinproc/kinproc/server/internal/controllers/tokentracking"
)

// addBootstrapHooks adds the hooks that create the objects every cluster has. They are listed by
// /readyz, so a hook that kube-apiserver has too gets the same name.
func (p *plane) addBootstrapHooks(generic *genericapiserver.Config) error {
	client, namespaces := p.self.client, p.informers.Core().V1().Namespaces().Lister()
	hooks := map[string]func(context.Context) error{
		"start-system-namespaces-controller": func(ctx context.Context) error {
			return p.keepNamespaces(ctx, client, namespaces)
		},
		"scheduling/bootstrap-system-priority-classes": p.unlessFresh(func(ctx context.Context) error {
			return admission.EnsureSystemPriorityClasses(ctx, client)
		}),
		"bootstrap-controller": func(ctx context.Context) error {
			return p.keepKubernetesService(ctx, client)
		},
		"start-cluster-authentication-info-controller": func(ctx context.Context) error {
			return p.keepTrust(ctx, client)
		},
		"priority-and-fairness-config-producer": func(ctx context.Context) error {
			return p.keepFlowControl(ctx, client)
		},
		"rbac/bootstrap-roles": p.unlessFresh(func(ctx context.Context) error {
			return p.ensureRoles(ctx, client)
		}),
		"start-kubernetes-service-cidr-controller": p.services.allocator.EnsureServiceCIDR,
		"start-service-ip-repair-controllers": func(ctx context.Context) error {
			return waitFor(ctx, p.services.repaired)
		},
		"start-legacy-token-tracking-controller": p.unlessFresh(func(ctx context.Context) error {
			return tokentracking.Ensure(ctx, client)
		}),
		"storage-readiness": p.storageReady,
	}
	if utilfeature.DefaultFeatureGate.Enabled(genericfeatures.APIServerIdentity) {
		maps.Copy(hooks, p.identityHooks(generic.APIServerID))
	}
	maps.Copy(hooks, p.forkHooks(client))
	if p.options.ReadOnly {
		hooks = map[string]func(context.Context) error{"storage-readiness": p.storageReady}
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

// unlessFresh returns a hook that does nothing if the first objects are all that ensure would
// create.
func (p *plane) unlessFresh(ensure func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if p.fresh {
			return nil
		}
		return ensure(ctx)
	}
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
		utilruntime.HandleErrorWithContext(ctx, err,
			"The server's own write was refused and will be retried", "hook", name)
		p.tasks.run(func() { retryRefused(ctx, hook) })
	default:
		p.tasks.fail(fmt.Errorf("%s: %w", name, err))
		<-ctx.Done()
	}
}

// identityHooks returns the hooks that keep this API server's lease, and delete the leases of API
// servers that are gone. The lease also has the address for peers, so the hook for peers has
// nothing else to do.
func (p *plane) identityHooks(id string) map[string]func(context.Context) error {
	client := p.self.client
	lease := identitylease.New(client, id, p.listener.Addr().String())
	return map[string]func(context.Context) error{
		"start-kube-apiserver-identity-lease-controller": func(ctx context.Context) error {
			p.tasks.run(func() { lease.Run(ctx) })
			return nil
		},
		"start-kube-apiserver-identity-lease-garbage-collector": func(ctx context.Context) error {
			p.tasks.every(identitylease.Interval, func(ctx context.Context) {
				identitylease.Collect(ctx, client)
			})
			return nil
		},
		"peer-endpoint-reconciler-controller": func(context.Context) error { return nil },
	}
}

// waitFor waits until done is closed or ctx ends, neither of which is an error.
func waitFor(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
	case <-ctx.Done():
	}
	return nil
}

// storageReady waits until the storage of all built-in kinds can serve requests.
func (p *plane) storageReady(ctx context.Context) error {
	_ = wait.PollUntilContextCancel(ctx, time.Millisecond, true, func(context.Context) (bool, error) {
		return p.chain.Core.StorageReady() == nil, nil
	})
	return nil // an end of ctx is no failure
}

const refusedInterval = 10 * time.Second

func retryRefused(ctx context.Context, hook func(context.Context) error) {
	_ = wait.PollUntilContextCancel(ctx, refusedInterval, false,
		func(ctx context.Context) (bool, error) {
			err := hook(ctx)
			if err != nil && ctx.Err() == nil {
				utilruntime.HandleErrorWithContext(ctx, err,
					"The server's own write was refused and will be retried")
			}
			return err == nil, nil
		})
}

// keepTrust publishes the authorities that extension API servers must trust, once and then in the
// background.
func (p *plane) keepTrust(ctx context.Context, client kubernetes.Interface) error {
	informer := p.storage.Informer(&corev1.ConfigMap{}, clusterauthenticationtrust.ConfigMap)
	controller := clusterauthenticationtrust.New(client, informer, p.trust(),
		len(p.options.EtcdServers) > 0)
	if err := p.unlessFresh(controller.Ensure)(ctx); err != nil {
		return err
	}
	informer.Start(ctx)
	p.tasks.join(informer.Wait)
	p.tasks.run(func() {
		if err := controller.Run(ctx); err != nil {
			p.tasks.fail(err)
		}
	})
	return nil
}

func (p *plane) trust() clusterauthenticationtrust.Trust {
	return clusterauthenticationtrust.Trust{
		ClientCA:      p.access.clientCA,
		RequestHeader: p.access.requestHeader,
	}
}

// keepFlowControl ensures the objects of API Priority and Fairness, once and then in the
// background.
func (p *plane) keepFlowControl(ctx context.Context, client kubernetes.Interface) error {
	ensure := func(ctx context.Context) error { return flowcontrolbootstrap.Ensure(ctx, client) }
	if err := p.unlessFresh(ensure)(ctx); err != nil {
		return err
	}
	p.tasks.every(flowcontrolbootstrap.Period, func(ctx context.Context) {
		if err := ensure(ctx); err != nil && ctx.Err() == nil {
			utilruntime.HandleErrorWithContext(ctx, err,
				"Failed to ensure the bootstrap objects of API Priority and Fairness")
		}
	})
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
	if enabled, err := p.enables(clusterroleaggregation.Name); err != nil || enabled {
		return policy, err
	}
	return policy.Unaggregate(), nil
}

// enables reports whether the options enable a control loop.
func (p *plane) enables(controller string) (bool, error) {
	enabled, err := controllers.Enabled(p.options.Controllers)
	return slices.Contains(enabled, controller), err
}
