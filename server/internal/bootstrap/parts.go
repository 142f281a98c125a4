package bootstrap

import (
	"context"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kinproc/kinproc/chain/kind"
	"github.com/kinproc/kinproc/server/internal/admission"
	"github.com/kinproc/kinproc/server/internal/allocation"
	"github.com/kinproc/kinproc/server/internal/auth/rbacauthorizer"
	"github.com/kinproc/kinproc/server/internal/bootstrap/clusterauthenticationtrust"
	"github.com/kinproc/kinproc/server/internal/bootstrap/flowcontrolbootstrap"
	"github.com/kinproc/kinproc/server/internal/bootstrap/identitylease"
	"github.com/kinproc/kinproc/server/internal/bootstrap/kubernetesservice"
	"github.com/kinproc/kinproc/server/internal/controllers/cluster/legacytokens"
	"github.com/kinproc/kinproc/server/internal/controllers/cluster/rootca"
	"github.com/kinproc/kinproc/server/internal/controllers/cluster/trustbundles"
	"github.com/kinproc/kinproc/server/internal/stopper"
)

// parts returns the parts but for those that only the chain knows.
func (c *Config) parts(s *stopper.Stopper) []Part {
	return slices.Concat([]Part{
		c.systemNamespaces(),
		{
			Hook:  "scheduling/bootstrap-system-priority-classes",
			First: renewed(priorityClasses),
			Ensure: func(ctx context.Context) error {
				return admission.EnsureSystemPriorityClasses(ctx, c.Client)
			},
		},
		c.flowControl(),
		c.roles(),
		c.trust(s),
		{
			Hook: "start-legacy-token-tracking-controller",
			First: func() ([]kind.Object, error) {
				return prepared(fieldManager, legacytokens.Tracking())
			},
			Ensure: func(ctx context.Context) error { return legacytokens.EnsureTracking(ctx, c.Client) },
		},
		{
			Hook:   "start-kubernetes-service-cidr-controller",
			Ensure: c.Services.Allocator.EnsureServiceCIDR,
		},
		{
			Hook:   "start-service-ip-repair-controllers",
			Ensure: c.Services.awaitRepair,
		},
		c.kubernetesService(s),
		c.rootCertificates(),
		c.trustBundle(),
	}, c.identity(s))
}

// flowControl are the suggested and mandatory priority levels and flow schemas. They are looked at
// again only if etcd says that one of them has changed.
func (c *Config) flowControl() Part {
	type state struct{ count, newest int64 }
	var seen [2]state
	return Part{
		Hook:  "priority-and-fairness-config-producer",
		First: flowControl,
		Ensure: func(ctx context.Context) (err error) {
			var now [2]state
			for i, path := range []string{"prioritylevelconfigurations", "flowschemas"} {
				if now[i].count, now[i].newest, err = c.Storage.State(ctx, path); err != nil {
					return err
				}
			}
			if now == seen && now[0].count > 0 && now[1].count > 0 {
				return nil
			}
			if err := flowcontrolbootstrap.Ensure(ctx, c.Client); err != nil {
				return err
			}
			seen = now
			return nil
		},
		Every: flowcontrolbootstrap.Period,
	}
}

// roles are the roles and bindings of RBAC. The aggregated roles have their rules from the start,
// unless the control loop that would fill them in does not run; then they are empty, as in
// kube-apiserver.
func (c *Config) roles() Part {
	ensured := rbacauthorizer.Bootstrap
	if !c.Aggregates {
		ensured = func() *rbacauthorizer.Policy { return rbacauthorizer.Bootstrap().Unaggregate() }
	}
	return Part{
		Hook:  "rbac/bootstrap-roles",
		First: renewed(policy(c.Aggregates)),
		Ensure: func(ctx context.Context) error {
			return rbacauthorizer.Ensure(ctx, c.Client, ensured())
		},
	}
}

const authenticationConfig = "configmaps/kube-system/extension-apiserver-authentication"

// trust is the config map with the authorities that extension API servers must trust.
func (c *Config) trust(s *stopper.Stopper) Part {
	trust := clusterauthenticationtrust.Trust{
		ClientCA:      c.Access.ClientCA,
		RequestHeader: c.Access.RequestHeader,
	}
	informer := c.Storage.Informer(&corev1.ConfigMap{}, clusterauthenticationtrust.ConfigMap)
	controller := clusterauthenticationtrust.New(c.Client, informer, trust, c.SharesEtcd)
	return Part{
		Hook: "start-cluster-authentication-info-controller",
		First: func() ([]kind.Object, error) {
			m, err := trust.ConfigMap()
			if err != nil {
				return nil, err
			}
			return prepared(fieldManager, m)
		},
		Ensure: controller.Ensure,
		Keep: func(ctx context.Context, _ bool) error {
			informer.Start(ctx)
			s.Wait(informer.Wait)
			s.Go(func() {
				if err := controller.Run(ctx); err != nil {
					s.Fail(err)
				}
			})
			return nil
		},
		Own: func(key string) bool { return key == authenticationConfig },
		Adopt: func() (map[string]Edit, error) {
			m, err := trust.ConfigMap()
			if err != nil {
				return nil, err
			}
			return map[string]Edit{authenticationConfig: withData(m.Data)}, nil
		},
	}
}

// kubernetesService is the service default/kubernetes with its endpoints and its address.
func (c *Config) kubernetesService(s *stopper.Stopper) Part {
	address := "ipaddresses/" + c.Services.Allocator.FirstIP().String()
	return Part{
		Hook:  "bootstrap-controller",
		First: c.firstService,
		Keep: func(ctx context.Context, complete bool) error {
			options, err := c.serviceOptions()
			if err != nil {
				return err
			}
			controller := kubernetesservice.New(c.Client, options)
			reconcile := controller.Reconcile
			if complete && options.Leases == nil {
				reconcile = controller.Accept
			}
			if err := reconcile(ctx); err != nil {
				return err
			}
			return keepService(ctx, controller, s)
		},
		Own: func(key string) bool {
			return strings.HasPrefix(key, "masterleases/") || slices.Contains(kubernetesservice.Keys(), key)
		},
		Always: func(key string, _ func(string) bool) bool { return key == address },
		Adopt:  c.adoptService,
	}
}

// keepService keeps the service until the stop, when the API is still served.
func keepService(
	ctx context.Context, controller *kubernetesservice.Controller, s *stopper.Stopper,
) error {
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	leave := func() error {
		cancel()
		return <-done
	}
	if !s.Push("the service default/kubernetes", leave) {
		cancel() // the stop has begun
		return nil
	}
	go func() { done <- controller.Run(run) }()
	return nil
}

// firstService returns nothing if there are other servers' addresses.
func (c *Config) firstService() ([]kind.Object, error) {
	options, err := c.serviceOptions()
	if err != nil || options.Leases != nil {
		return nil, err
	}
	builtIn, err := preparer()
	if err != nil {
		return nil, err
	}
	objects := options.FirstObjects()
	var all []kind.Object
	if objects.Endpoints != nil {
		if all, err = prepared(fieldManager, objects.Endpoints, objects.Slice); err != nil {
			return nil, err
		}
	}
	err = builtIn.PrepareOwned(context.Background(), objects.Service, fieldManager,
		objects.ServiceFields)
	if err != nil {
		return nil, err
	}
	// The allocator has prepared the address.
	return append(all, objects.Service,
		allocation.NewAddress(options.ServiceIP, objects.Service)), nil
}

func (c *Config) adoptService() (map[string]Edit, error) {
	options, err := c.serviceOptions()
	if err != nil {
		return nil, err
	}
	own := options.FirstObjects()
	edits := map[string]Edit{
		kubernetesservice.ServiceKey: edit(func(s *corev1.Service) bool {
			s.Spec.Type, s.Spec.Ports = own.Service.Spec.Type, own.Service.Spec.Ports
			return true
		}),
	}
	if own.Endpoints != nil {
		edits[kubernetesservice.EndpointsKey] = edit(func(e *corev1.Endpoints) bool {
			e.Subsets = own.Endpoints.Subsets
			return true
		})
		edits[kubernetesservice.SliceKey] = edit(func(s *discoveryv1.EndpointSlice) bool {
			s.AddressType, s.Endpoints, s.Ports = own.Slice.AddressType, own.Slice.Endpoints, own.Slice.Ports
			return true
		})
	}
	return edits, nil
}

// rootCertificates are the config maps kube-root-ca.crt of all namespaces. A control loop makes
// them. In a fork, which would have those of another control plane at first, they are corrected
// before the server is ready. Without the control loop, whoever keeps them instead, if anybody,
// decides what is in them.
func (c *Config) rootCertificates() Part {
	p := Part{Always: func(key string, has func(string) bool) bool {
		rest, ok := strings.CutPrefix(key, "configmaps/")
		namespace, name, _ := strings.Cut(rest, "/")
		return ok && name == rootca.ConfigMap && has("namespaces/"+namespace)
	}}
	if !c.PublishesRoots {
		return p
	}
	p.Adopt = func() (map[string]Edit, error) {
		return map[string]Edit{
			"configmaps/" + everyNamespace + "/" + rootca.ConfigMap: withData(map[string]string{
				rootca.Key: string(c.Access.CABundle()),
			}),
		}, nil
	}
	if c.Forked {
		p.Hook = "publish-root-certificates"
		p.Ensure = func(ctx context.Context) error {
			return rootca.Publish(ctx, c.Client, c.Access.CABundle())
		}
	}
	return p
}

// trustBundle is the ClusterTrustBundle with the root certificates. A control loop keeps it. It
// exists from the start, because a request for it would make the server prepare the kind, which
// most clients never use.
func (c *Config) trustBundle() Part {
	if !c.PublishesTrust {
		return Part{}
	}
	return Part{
		First: func() ([]kind.Object, error) {
			o, err := prepared("kube-controller-manager", trustbundles.Bundle(c.Access.CABundle()))
			if err != nil {
				// The user's certificates make no valid bundle. The loop says so.
				return nil, nil
			}
			managed := o[0].GetManagedFields()
			for i := range managed {
				managed[i].APIVersion = certificatesv1.SchemeGroupVersion.String() // as the loop does
			}
			return o, nil
		},
		Own: func(key string) bool {
			return strings.HasPrefix(key, "clustertrustbundles/"+trustbundles.Prefix)
		},
	}
}

// identity is this API server's lease, and the end of the leases of API servers that are gone. The
// lease also has the address for peers, so the hook for peers has nothing else to do.
func (c *Config) identity(s *stopper.Stopper) []Part {
	own := func(key string) bool { return strings.HasPrefix(key, "leases/kube-system/apiserver-") }
	if c.Identity == "" {
		return []Part{{Own: own}}
	}
	lease := identitylease.New(c.Client, c.Identity, c.Address.String())
	return []Part{
		{
			Hook: "start-kube-apiserver-identity-lease-controller",
			Keep: func(ctx context.Context, _ bool) error {
				s.Go(func() { lease.Run(ctx) })
				return nil
			},
			Own: own,
		},
		{
			Hook: "start-kube-apiserver-identity-lease-garbage-collector",
			Keep: func(context.Context, bool) error {
				s.Every(identitylease.Interval, func(ctx context.Context) {
					identitylease.Collect(ctx, c.Client)
				})
				return nil
			},
		},
		{Hook: "peer-endpoint-reconciler-controller"},
	}
}

// APIServices are those of the group versions that the chain itself serves. The aggregator keeps
// them.
func APIServices(versions []schema.GroupVersion) Part {
	keys := map[string]bool{}
	for _, gv := range versions {
		keys["apiregistration.k8s.io/apiservices/"+gv.Version+"."+gv.Group] = true
	}
	return Part{
		First: func() ([]kind.Object, error) {
			var services []kind.Object
			for _, gv := range versions {
				service, err := apiService(gv)
				if err != nil {
					return nil, err
				}
				services = append(services, service)
			}
			return services, nil
		},
		Always: func(key string, _ func(string) bool) bool { return keys[key] },
	}
}
