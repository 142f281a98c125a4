package server

import (
	"context"
	"net"
	"path/filepath"
	"slices"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/dynamic"
	rbacinformers "k8s.io/client-go/informers/rbac/v1"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/server/internal/admission"
	"github.com/kinproc/kinproc/server/internal/apis"
	"github.com/kinproc/kinproc/server/internal/auth"
	"github.com/kinproc/kinproc/server/internal/bootstrap"
	"github.com/kinproc/kinproc/server/internal/bootstrap/kubernetesservice"
	"github.com/kinproc/kinproc/server/internal/controllers"
	"github.com/kinproc/kinproc/server/internal/controllers/cluster/clusterroleaggregation"
	"github.com/kinproc/kinproc/server/internal/controllers/cluster/resourcequotas"
	"github.com/kinproc/kinproc/server/internal/controllers/cluster/rootca"
	"github.com/kinproc/kinproc/server/internal/controllers/cluster/trustbundles"
	"github.com/kinproc/kinproc/server/internal/controllers/network/loadbalancers"
	"github.com/kinproc/kinproc/server/internal/datadir"
	"github.com/kinproc/kinproc/server/internal/etcdconn"
	"github.com/kinproc/kinproc/server/internal/loops"
	"github.com/kinproc/kinproc/server/internal/metricsapi"
	"github.com/kinproc/kinproc/server/internal/requests"
	"github.com/kinproc/kinproc/server/internal/requests/connections"
	"github.com/kinproc/kinproc/server/internal/reset"
	"github.com/kinproc/kinproc/server/internal/simulated"
	"github.com/kinproc/kinproc/server/internal/stopper"
)

// configs tells each room of the control plane what it needs of the options and of the rooms that
// are open, and no more. Options itself has no such methods: to compile what uses a type, Go reads
// the types of all its methods and fields, exported or not, and of all that these have. The types
// of the rooms lead to all informers of client-go, and each package that reads those takes more
// than a second.
type configs struct{ *Options }

func (o configs) directory() datadir.Config {
	return datadir.Config{Path: o.DataDir, Names: o.names()}
}

func (o configs) listen() requests.ListenConfig {
	c := requests.ListenConfig{
		Listener: o.Listener, Listen: net.Listen,
		Host: o.BindAddress, Port: o.SecurePort, Names: o.names(),
	}
	if o.Network != nil {
		c.Listen = o.Network.Listen
	}
	return c
}

// etcd returns the configuration of etcd with its data in dir.
func (o configs) etcd(dir *datadir.Dir) etcdconn.Config {
	c := etcdconn.Config{
		Servers: o.EtcdServers, CAFile: o.EtcdCAFile, CertFile: o.EtcdCertFile, KeyFile: o.EtcdKeyFile,
		Dir: dir.Etcd(), Ephemeral: !dir.Kept, QuotaBytes: o.QuotaBackendBytes, ReadOnly: o.ReadOnly,
		Log: o.Log, Names: o.names(),
	}
	if o.From != nil {
		c.From = o.From.data
	}
	return c
}

// sharesEtcd reports whether other control planes may use the same etcd.
func (o *Options) sharesEtcd() bool { return len(o.EtcdServers) > 0 }

// beginsEmpty reports whether etcd certainly holds nothing yet.
func (o *Options) beginsEmpty() bool { return o.DataDir == "" && o.From == nil && !o.sharesEtcd() }

func (o configs) encryption() etcdconn.EncryptionConfig {
	return etcdconn.EncryptionConfig{
		File: o.EncryptionProviderConfig, Reload: o.EncryptionProviderConfigAutomaticReload,
		Names: o.names(),
	}
}

// storage returns how objects are stored. With an external etcd, nobody knows whether another one
// has taken its place, so who wrote what is not kept.
func (o configs) storage(
	dir *datadir.Dir, encryption *etcdconn.Encryption,
) etcdconn.StorageConfig {
	c := etcdconn.StorageConfig{
		Prefix: o.EtcdPrefix, ReadOnly: o.ReadOnly, HistoryKept: o.HistoryKept,
		Encryption: encryption,
	}
	if !o.sharesEtcd() {
		c.Writers = dir.Writers()
	}
	return c
}

func (o configs) etcdClients(dir *datadir.Dir) etcdconn.ListenConfig {
	return etcdconn.ListenConfig{
		Address: o.ListenEtcd, Dir: filepath.Join(dir.PKI(), "etcd"), Names: o.names(),
	}
}

func (o configs) requests(l *connections.Listener) requests.Config {
	return requests.Config{
		Listener: l, UserAgent: "kube-apiserver/" + KubernetesVersion + " (kinproc)", Log: o.Log,
	}
}

func (o configs) services(r *running) bootstrap.ServicesConfig {
	return bootstrap.ServicesConfig{
		ClusterIPRange: o.ServiceClusterIPRange, NodePortRange: o.ServiceNodePortRange,
		Storage: r.storage, SharesEtcd: o.sharesEtcd(), ReadOnly: o.ReadOnly,
	}
}

// enables reports whether a control loop runs. Which do, has been validated.
func (o *Options) enables(loop string) bool {
	enabled, _ := controllers.Enabled(o.Controllers)
	return slices.Contains(enabled, loop)
}

// auth returns the configuration of who may do what. The address of the service kubernetes is in
// the serving certificate.
func (o configs) auth(r *running) (auth.Config, error) {
	service := r.services.Allocator.FirstIP()
	host, _, err := net.SplitHostPort(r.listener.Addr().String())
	if err != nil {
		return auth.Config{}, err
	}
	ip := net.ParseIP(host)
	hosts, advertised := []string{host, service.String()}, o.AdvertiseAddress
	if ip.IsUnspecified() {
		hosts = append(hosts, kubernetesservice.AdvertiseAddress(ip).String())
	}
	if advertised != "" {
		hosts = append(hosts, advertised)
	} else {
		advertised = kubernetesservice.AdvertiseAddress(ip).String()
	}
	return auth.Config{
		Directory: r.directory, PKIDir: o.PKIDir,
		Hosts: hosts, Listener: r.listener, AdvertiseAddress: advertised,
		ServiceIP:   service.String(),
		TLSCertFile: o.TLSCertFile, TLSPrivateKeyFile: o.TLSPrivateKeyFile, CertDir: o.CertDir,
		TLSMinVersion: o.TLSMinVersion, TLSCipherSuites: o.TLSCipherSuites,

		ClientCAFile: o.ClientCAFile, RequestHeader: auth.RequestHeader(o.RequestHeader),
		ProxyClientCertFile: o.ProxyClientCertFile, ProxyClientKeyFile: o.ProxyClientKeyFile,
		TokenAuthFile: o.TokenAuthFile, EnableBootstrapTokenAuth: o.EnableBootstrapTokenAuth,
		Anonymous: o.anonymous(), DisableAnonymous: o.DisableAnonymous,
		ServiceAccounts: auth.ServiceAccounts{
			Issuers: o.ServiceAccountIssuer, Audiences: o.APIAudiences,
			KeyFiles: o.ServiceAccountKeyFiles, SigningKeyFile: o.ServiceAccountSigningKeyFile,
			JWKSURI: o.ServiceAccountJWKSURI, MaxExpiration: o.ServiceAccountMaxTokenExpiration,
		},
		OIDC: auth.OIDC(o.OIDC), AuthenticationConfigFile: o.AuthenticationConfigFile,
		TokenWebhook: auth.TokenWebhook(o.TokenWebhook),

		AuthorizationModes:      o.AuthorizationModes,
		AuthorizationWebhook:    auth.AuthorizationWebhook(o.AuthorizationWebhook),
		AuthorizationConfigFile: o.AuthorizationConfigFile,
		ReadOnly:                o.ReadOnly,

		Client: r.requests.Client,
		Roles: func() (rbacinformers.Interface, func(context.Context)) {
			factory := r.sets.Factory()
			return factory.Rbac().V1(), factory.StartWithContext
		},
		Names: o.names(),
	}, nil
}

func (o configs) bootstrap(r *running) bootstrap.Config {
	return bootstrap.Config{
		Client: r.requests.Client, Informers: r.informers, Storage: r.storage, Etcd: r.etcd.Client,
		Access: r.access, Services: r.services, Address: r.listener.Addr(), Identity: r.identity,
		AdvertiseAddress: o.AdvertiseAddress,
		Aggregates:       o.enables(clusterroleaggregation.Name),
		PublishesRoots:   o.enables(rootca.Name),
		PublishesTrust:   o.enables(trustbundles.Name),
		SharesEtcd:       o.sharesEtcd(), ReadOnly: o.ReadOnly,
		Forked: o.From != nil, Ready: o.From != nil && o.From.bootstrapped,
	}
}

// apis returns the configuration of the API servers. They connect to webhooks by dial and to
// extension API servers by extensions; nil is the usual dialer.
func (o configs) apis(r *running, dial, extensions utilnet.DialFunc) apis.Config {
	c := apis.Config{
		Storage: r.storage, Etcd: r.etcd, Requests: r.requests, Access: r.access,
		Allocator: r.services.Allocator, Informers: r.informers,
		Address: r.listener.Addr(), Identity: r.identity, Hooks: r.bootstrap.Hooks(),
		Dial: dial, DialExtensions: extensions, Kubelet: o.kubelet(r),
		Version: o.version(), Flags: shownFlags{*o.Options},
		EventTTL: o.EventTTL, RequestTimeout: o.RequestTimeout, MinRequestTimeout: o.MinRequestTimeout,
		MaxRequestsInFlight:         o.MaxRequestsInFlight,
		MaxMutatingRequestsInFlight: o.MaxMutatingRequestsInFlight,
		PriorityAndFairness:         !o.DisablePriorityAndFairness, Profiling: !o.DisableProfiling,
		AllowLocalProxy: o.ProxyAllowLocalAddresses, EndpointsOnly: o.EnableAggregatorRouting,
		Resources: o.switches(), ReadOnly: o.ReadOnly,
		Audit: libraryAudit(o.Options), AuditBackend: o.AuditBackend,

		Admission: libraryAdmission(o.Options),
		Tolerations: admission.TolerationSeconds{
			NotReady:    *o.DefaultNotReadyTolerationSeconds,
			Unreachable: *o.DefaultUnreachableTolerationSeconds,
		},
		Quotas:           admission.Quotas{Counted: o.enables(resourcequotas.Name), Charges: r.charges},
		RefusePrivileged: o.DisallowPrivileged,
	}
	if r.encryption != nil {
		c.Checks = r.encryption.Checks
	}
	return c
}

func (o configs) reset(r *running) reset.Config {
	return reset.Config{
		Etcd: r.etcd, Storage: r.storage, Encrypted: r.encryption != nil, ReadOnly: o.ReadOnly,
		Gate: r.requests.Gate, Informers: r.sets, Parts: r.bootstrap,
		Followers: []reset.Follower{r.sets, r.apis.Chain, r.apis.Plugins},
		Available: r.apis.Chain.Aggregator.WaitAvailable,
	}
}

// dial returns what connects to webhooks and extension API servers, or nil for the usual dialer.
// The stopper closes the connections, because clients keep idle ones open.
func (o configs) dial(s *stopper.Stopper) utilnet.DialFunc {
	if o.Network == nil {
		return nil
	}
	open := &connections.Set{}
	s.Push("connections to webhooks and extension API servers", func() error {
		open.Close()
		return nil
	})
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := o.Network.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return open.Add(c)
	}
}

// nodeKinds returns the kinds of nodes as their room knows them.
func (o *Options) nodeKinds() []simulated.Kind {
	var kinds []simulated.Kind
	for _, k := range o.SimulatedNodeKinds {
		kinds = append(kinds, simulated.Kind(k))
	}
	return kinds
}

// marks returns what the nodes have that are simulated. The selector has been validated.
func (o *Options) marks() simulated.Marks {
	marks, _ := simulated.ParseMarks(o.SimulateNodesMatching)
	return marks
}

// behaviors returns the behaviors of simulated pods, which do not run yet, or nil if there are
// none.
func (o configs) behaviors(r *requests.Requests) (*simulated.Behaviors, error) {
	if !o.PodBehaviors {
		return nil, nil
	}
	config := rest.CopyConfig(r.Config)
	config.ContentConfig = rest.ContentConfig{} // custom resources are JSON
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &simulated.Behaviors{Client: client, ReadOnly: o.ReadOnly}, nil
}

// kubelet returns what answers for simulated pods.
func (o configs) kubelet(r *running) *simulated.Kubelet {
	k := &simulated.Kubelet{
		Client: r.requests.Client, Marks: o.marks(), Behaviors: r.behaviors, LogDir: o.SimulatedLogDir,
	}
	k.Open, _ = simulated.ParsePorts(o.StandInPorts) // have been validated
	return k
}

// servesMetrics reports whether the control plane serves the metrics APIs.
func (o *Options) servesMetrics() bool {
	return o.SimulatedMetrics &&
		(o.SimulatedNodes > 0 || len(o.SimulatedNodeKinds) > 0 || o.SimulateNodesMatching != "")
}

// loops returns the configuration of the control loops. Nodes of an earlier start are looked for
// unless the storage was empty.
func (o configs) loops(r *running) loops.Config {
	extensions := r.apis.Chain.Aggregator.APIRegistrationInformers.Apiregistration().V1().APIServices()
	c := loops.Config{
		Requests: r.requests, Informers: r.informers, Storage: r.storage, Access: r.access,
		Allocator: r.services.Allocator, Charges: r.charges, BuiltIn: r.apis.Chain.Core.Resource,
		Metrics: metricsapi.Registration{
			Config: r.requests.Config, APIServices: extensions.Informer(),
		},
		StaleMetrics: metricsapi.Registered(extensions.Lister()), Behaviors: r.behaviors,
		Controllers: o.Controllers, Nodes: o.SimulatedNodes, Capacity: o.SimulatedNodeCapacity,
		NodeKinds: o.nodeKinds(), Marks: o.marks(),
		NodesStay: o.From != nil || r.bootstrap.Complete(),
		Version:   KubernetesVersion, SharesEtcd: o.sharesEtcd(),
		ServesMetrics:     o.servesMetrics(),
		MakesStorageClass: !slices.Contains(o.Admission.DisablePlugins, "DefaultStorageClass"),
	}
	c.LoadBalancers, _ = loadbalancers.ParseRange(o.LoadBalancerRange) // has been validated
	if o.Network != nil {
		c.LeaseDuration = time.Hour // time passes fast, and each renewal is work
	}
	return c
}
