package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"

	"github.com/kinproc/kinproc/server/internal/admission"
	"github.com/kinproc/kinproc/server/internal/auth/rbacauthorizer"
	"github.com/kinproc/kinproc/server/internal/controllers"
	"github.com/kinproc/kinproc/server/internal/controllers/clusterauthenticationtrust"
	"github.com/kinproc/kinproc/server/internal/controllers/clusterroleaggregation"
	"github.com/kinproc/kinproc/server/internal/controllers/flowcontrolbootstrap"
)

// addBootstrapHooks makes the objects that every cluster has, under kube-apiserver's names where it has the same hook: /readyz shows them.
func (s *Server) addBootstrapHooks(generic *genericapiserver.Config, client kubernetes.Interface, namespaces corelisters.NamespaceLister) error {
	hooks := map[string]func(context.Context) error{
		"start-system-namespaces-controller": func(ctx context.Context) error { return s.keepNamespaces(ctx, client, namespaces) },
		"scheduling/bootstrap-system-priority-classes": func(ctx context.Context) error {
			return admission.EnsureSystemPriorityClasses(ctx, client)
		},
		"bootstrap-controller":                         func(ctx context.Context) error { return s.keepKubernetesService(ctx, client) },
		"start-cluster-authentication-info-controller": func(ctx context.Context) error { return s.keepTrust(ctx, client) },
		"priority-and-fairness-config-producer":        func(ctx context.Context) error { return s.keepFlowControl(ctx, client) },
		"rbac/bootstrap-roles":                         func(ctx context.Context) error { return s.ensureRoles(ctx, client) },
	}
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

// refused reports whether an error is what users have set up, not one of the server.
func refused(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	message := status.Status().Message
	return apierrors.IsForbidden(err) || strings.Contains(message, "denied request") || strings.Contains(message, "webhook")
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
