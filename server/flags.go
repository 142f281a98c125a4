package server

import (
	"strings"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/kinproc/kinproc/server/internal/auth"
	"github.com/kinproc/kinproc/server/internal/flags"
)

// AddFlags sets the defaults and binds the options to flags, by section. From then on, errors name
// the flags.
func (o *Options) AddFlags(sections *cliflag.NamedFlagSets) {
	o.complete()
	o.flags = true
	o.addServingFlags(sections.FlagSet("serving"))
	o.addEtcdFlags(sections.FlagSet("etcd"))
	o.addAuthFlags(sections.FlagSet("authentication and authorization"))
	o.addServiceAccountFlags(sections.FlagSet("service accounts"))
	o.addAPIFlags(sections.FlagSet("API"))
	o.addAdmissionFlags(sections.FlagSet("admission"))
	flags.AddIneffective(sections.FlagSet("API"), &o.ineffective)
	libraryAudit(o).AddFlags(sections.FlagSet("auditing"))
}

func (o *Options) addServingFlags(f *pflag.FlagSet) {
	f.StringVar(&o.DataDir, "data-dir", o.DataDir, "directory of etcd's data, keys and certificates")
	f.StringVar(&o.BindAddress, "bind-address", o.BindAddress, "address to listen on")
	f.BoolVar(&o.ReadOnly, "read-only", o.ReadOnly,
		"refuse every request that would change something, and change nothing otherwise either")
	f.IntVar(&o.SecurePort, "secure-port", o.SecurePort, "port to listen on; 0 picks a free one")
	o.addTLSFlags(f)
	o.addLimitFlags(f)
}

func (o *Options) addTLSFlags(f *pflag.FlagSet) {
	f.StringVar(&o.AdvertiseAddress, "advertise-address", o.AdvertiseAddress,
		"IP address of the endpoint of the service default/kubernetes; if empty, the bind "+
			"address or that of the default route")
	f.StringVar(&o.TLSCertFile, "tls-cert-file", o.TLSCertFile,
		"serving certificate, followed by its authorities; one of the control plane's own "+
			"authority if empty")
	f.StringVar(&o.TLSPrivateKeyFile, "tls-private-key-file", o.TLSPrivateKeyFile,
		"key of that certificate")
	f.StringVar(&o.CertDir, "cert-dir", o.CertDir,
		"directory with the serving certificate apiserver.crt and its key apiserver.key, "+
			"written if they do not exist; not used with --tls-cert-file")
	f.StringVar(&o.TLSMinVersion, "tls-min-version", o.TLSMinVersion,
		"oldest version of TLS to accept, such as VersionTLS13")
	f.StringSliceVar(&o.TLSCipherSuites, "tls-cipher-suites", o.TLSCipherSuites,
		"cipher suites to accept up to TLS 1.2; Go's default if empty")
}

func (o *Options) addLimitFlags(f *pflag.FlagSet) {
	f.IntVar(&o.MaxRequestsInFlight, "max-requests-inflight", o.MaxRequestsInFlight,
		"number of concurrent requests, not counting watches, that are added to "+
			"--max-mutating-requests-inflight and divided by API Priority and Fairness; without "+
			"it, the limit of requests that read, or none if 0")
	f.IntVar(&o.MaxMutatingRequestsInFlight, "max-mutating-requests-inflight",
		o.MaxMutatingRequestsInFlight,
		"see --max-requests-inflight; without API Priority and Fairness, the limit of requests "+
			"that write, or none if 0")
	flags.AddNegated(f, &o.DisablePriorityAndFairness, "enable-priority-and-fairness",
		"divide concurrent requests among clients with API Priority and Fairness")
	f.DurationVar(&o.RequestTimeout, "request-timeout", o.RequestTimeout,
		"how long a request may take that is not long-running")
	f.IntVar(&o.MinRequestTimeout, "min-request-timeout", o.MinRequestTimeout,
		"shortest time, in seconds, after which a watch ends that asks for no timeout; the longest "+
			"is twice as long")
	flags.AddNegated(f, &o.DisableProfiling, "profiling", "serve profiles at /debug/pprof")
}

func (o *Options) addEtcdFlags(f *pflag.FlagSet) {
	f.StringSliceVar(&o.EtcdServers, "etcd-servers", o.EtcdServers,
		"URLs of an external etcd cluster, used instead of the embedded one")
	f.StringVar(&o.EtcdCAFile, "etcd-cafile", o.EtcdCAFile,
		"certificate authorities of the external etcd")
	f.StringVar(&o.EtcdCertFile, "etcd-certfile", o.EtcdCertFile,
		"client certificate for the external etcd")
	f.StringVar(&o.EtcdKeyFile, "etcd-keyfile", o.EtcdKeyFile,
		"key of the client certificate for the external etcd")
	f.StringVar(&o.PKIDir, "pki-dir", o.PKIDir,
		"directory of the certificate authorities and the service account key, which control planes "+
			"that share an etcd must share too")
	f.StringVar(&o.ListenEtcd, "listen-etcd", o.ListenEtcd,
		"loopback address and port at which the embedded etcd serves other programs, such as "+
			"127.0.0.1:2379; they need the certificates in pki/etcd")
	f.StringVar(&o.EtcdPrefix, "etcd-prefix", o.EtcdPrefix,
		"prefix of all keys in etcd; /registry if empty")
	f.DurationVar(&o.EventTTL, "event-ttl", o.EventTTL, "how long events are kept; for ever if 0")
	f.DurationVar(&o.HistoryKept, "history-kept", o.HistoryKept,
		"how long old versions of objects are kept at least, but at most 100,000 of them, and 256 MiB "+
			"or a quarter of --quota-backend-bytes; see kinproc history")
	f.Int64Var(&o.QuotaBackendBytes, "quota-backend-bytes", o.QuotaBackendBytes,
		"size that the database of the embedded etcd has at most; when objects fill it, only reads and "+
			"deletions go on")
	o.addEncryptionFlags(f)
}

func (o *Options) addEncryptionFlags(f *pflag.FlagSet) {
	f.StringVar(&o.EncryptionProviderConfig, "encryption-provider-config", o.EncryptionProviderConfig,
		"file with an EncryptionConfiguration: which resources are encrypted in etcd, and how")
	f.BoolVar(&o.EncryptionProviderConfigAutomaticReload,
		"encryption-provider-config-automatic-reload", o.EncryptionProviderConfigAutomaticReload,
		"let changes of that file take effect at once")
}

func (o *Options) addAuthFlags(f *pflag.FlagSet) {
	f.StringVar(&o.ClientCAFile, "client-ca-file", o.ClientCAFile,
		"additional certificate authorities whose client certificates are accepted")
	f.StringVar(&o.TokenAuthFile, "token-auth-file", o.TokenAuthFile,
		`CSV file of static bearer tokens: token,user,uid,"group1,group2"`)
	f.BoolVar(&o.EnableBootstrapTokenAuth, "enable-bootstrap-token-auth",
		o.EnableBootstrapTokenAuth,
		"accept tokens from secrets of the type bootstrap.kubernetes.io/token in kube-system")
	flags.AddNegated(f, &o.DisableAnonymous, "anonymous-auth",
		"treat requests without credentials as coming from system:anonymous; never with "+
			"AlwaysAllow")
	o.addIssuerFlags(f)
	o.addAuthorizationFlags(f)
	r := &o.RequestHeader
	f.StringVar(&r.ClientCAFile, "requestheader-client-ca-file", r.ClientCAFile,
		"certificate authorities of proxies that may name users in headers")
	f.StringSliceVar(&r.AllowedNames, "requestheader-allowed-names", r.AllowedNames, "common names "+
		"of such proxies; any if empty, which requires authorities that sign no client certificates")
	f.StringSliceVar(&r.UsernameHeaders, "requestheader-username-headers", r.UsernameHeaders,
		"headers with the user's name")
	f.StringSliceVar(&r.UIDHeaders, "requestheader-uid-headers", r.UIDHeaders,
		"headers with the user's UID")
	f.StringSliceVar(&r.GroupHeaders, "requestheader-group-headers", r.GroupHeaders,
		"headers with the user's groups")
	f.StringSliceVar(&r.ExtraHeaderPrefixes, "requestheader-extra-headers-prefix",
		r.ExtraHeaderPrefixes, "prefixes of the headers with the user's extra attributes")
	f.StringVar(&o.ProxyClientCertFile, "proxy-client-cert-file", o.ProxyClientCertFile,
		"certificate that identifies the aggregator to extension API servers")
	f.StringVar(&o.ProxyClientKeyFile, "proxy-client-key-file", o.ProxyClientKeyFile,
		"key of that certificate")
}

func (o *Options) addIssuerFlags(f *pflag.FlagSet) {
	f.StringVar(&o.AuthenticationConfigFile, "authentication-config", o.AuthenticationConfigFile,
		"file with an AuthenticationConfiguration: the issuers whose tokens are accepted, and what "+
			"anonymous users may reach; changes take effect at once")
	i := &o.OIDC
	f.StringVar(&i.IssuerURL, "oidc-issuer-url", i.IssuerURL,
		"URL of an OpenID Connect provider whose tokens are accepted")
	f.StringVar(&i.ClientID, "oidc-client-id", i.ClientID, "audience of those tokens")
	f.StringVar(&i.CAFile, "oidc-ca-file", i.CAFile,
		"certificate authorities of the provider; those of the machine if empty")
	f.StringVar(&i.UsernameClaim, "oidc-username-claim", i.UsernameClaim,
		"claim with the name of the user")
	f.StringVar(&i.UsernamePrefix, "oidc-username-prefix", i.UsernamePrefix,
		"prefix of user names; - for none")
	f.StringVar(&i.GroupsClaim, "oidc-groups-claim", i.GroupsClaim,
		"claim with the groups of the user")
	f.StringVar(&i.GroupsPrefix, "oidc-groups-prefix", i.GroupsPrefix, "prefix of groups")
	f.StringSliceVar(&i.SigningAlgs, "oidc-signing-algs", i.SigningAlgs,
		"algorithms by which tokens may be signed")
	f.Var(cliflag.NewMapStringStringNoSplit(&i.RequiredClaims), "oidc-required-claim",
		"claim that tokens must have, and its value: name=value; may be repeated")
	w := &o.TokenWebhook
	f.StringVar(&w.ConfigFile, "authentication-token-webhook-config-file", w.ConfigFile,
		"kubeconfig of a webhook that is asked who the bearer of a token is")
	f.StringVar(&w.Version, "authentication-token-webhook-version", w.Version,
		"version of the TokenReviews for that webhook: v1 or v1beta1")
	f.DurationVar(&w.CacheTTL, "authentication-token-webhook-cache-ttl", w.CacheTTL,
		"how long its answers are kept")
}

func (o *Options) addAuthorizationFlags(f *pflag.FlagSet) {
	f.StringSliceVar(&o.AuthorizationModes, "authorization-mode", o.AuthorizationModes,
		"authorizers to ask, in order: "+strings.Join(auth.Modes(), ", ")+"; RBAC if empty")
	f.StringVar(&o.AuthorizationConfigFile, "authorization-config", o.AuthorizationConfigFile,
		"file with an AuthorizationConfiguration, instead of the other authorization flags; changes "+
			"take effect at once")
	w := &o.AuthorizationWebhook
	f.StringVar(&w.ConfigFile, "authorization-webhook-config-file", w.ConfigFile,
		"kubeconfig of the webhook of the authorization mode Webhook")
	f.StringVar(&w.Version, "authorization-webhook-version", w.Version,
		"version of the SubjectAccessReviews for that webhook: v1 or v1beta1")
	f.DurationVar(&w.AuthorizedTTL, "authorization-webhook-cache-authorized-ttl", w.AuthorizedTTL,
		"how long its answers that allow are kept")
	f.DurationVar(&w.UnauthorizedTTL, "authorization-webhook-cache-unauthorized-ttl",
		w.UnauthorizedTTL, "how long its other answers are kept")
}

func (o *Options) addServiceAccountFlags(f *pflag.FlagSet) {
	f.StringSliceVar(&o.APIAudiences, "api-audiences", o.APIAudiences,
		"audiences of tokens for this server; the service account issuer if empty")
	f.StringSliceVar(&o.ServiceAccountIssuer, "service-account-issuer", o.ServiceAccountIssuer,
		"issuer of the tokens that are signed here, followed by other accepted issuers")
	f.StringVar(&o.ServiceAccountSigningKeyFile, "service-account-signing-key-file",
		o.ServiceAccountSigningKeyFile, "key that signs tokens; a key in the data directory if empty")
	f.StringSliceVar(&o.ServiceAccountKeyFiles, "service-account-key-file", o.ServiceAccountKeyFiles,
		"additional keys that verify tokens")
	f.DurationVar(&o.ServiceAccountMaxTokenExpiration, "service-account-max-token-expiration",
		o.ServiceAccountMaxTokenExpiration, "maximum lifetime of a token; unlimited if 0")
	f.StringVar(&o.ServiceAccountJWKSURI, "service-account-jwks-uri", o.ServiceAccountJWKSURI,
		"URI of the key set in the OpenID configuration")
}

func (o *Options) addAPIFlags(f *pflag.FlagSet) {
	f.Var(&o.RuntimeConfig, "runtime-config",
		"group versions and resources to enable or disable, such as api/beta=true or batch/v1/jobs=false")
	f.StringVar(&o.EmulatedVersion, "emulated-version", o.EmulatedVersion,
		"minor version of Kubernetes to behave as: "+strings.Join(EmulatedVersions(), ", "))
	f.Var(cliflag.NewMapStringBool(&o.FeatureGates), "feature-gates",
		"features to enable or disable, such as A=true,B=false")
	f.StringVar(&o.ServiceClusterIPRange, "service-cluster-ip-range", o.ServiceClusterIPRange,
		"range of cluster IPs: a CIDR, or one of each IP family")
	f.StringVar(&o.ServiceNodePortRange, "service-node-port-range",
		o.ServiceNodePortRange, "range of node ports")
	flags.AddNegated(f, &o.DisallowPrivileged, "allow-privileged", "allow privileged containers")
	f.BoolVar(&o.EnableAggregatorRouting, "enable-aggregator-routing", o.EnableAggregatorRouting,
		"send requests for extension API servers and webhooks to endpoints, never to cluster IPs")
	f.BoolVar(&o.ProxyAllowLocalAddresses, "proxy-allow-local-addresses", o.ProxyAllowLocalAddresses,
		"let the proxies to services, pods and nodes reach loopback and link-local addresses, "+
			"such as the ports of this machine")
	f.StringSliceVar(&o.Controllers, "controllers", o.Controllers, flags.DescribeControllers())
	// the usage names the default; otherwise it would be appended to the list
	f.Lookup("controllers").DefValue = "[]"
	o.addNodeFlags(f)
}

func (o *Options) addNodeFlags(f *pflag.FlagSet) {
	f.IntVar(&o.SimulatedNodes, "simulate-nodes", o.SimulatedNodes,
		"number of nodes to simulate; their pods start, run and end, though no container runs")
	f.Var(flags.Quantities{List: &o.SimulatedNodeCapacity}, "simulated-node-capacity",
		"capacity of each simulated node, such as cpu=8,memory=32Gi,example.com/gpu=4")
	f.BoolVar(&o.SimulatedMetrics, "simulated-metrics", o.SimulatedMetrics,
		"serve metrics.k8s.io and the APIs of custom and external metrics for simulated pods; see "+
			"docs/nodes.md")
	f.BoolVar(&o.PodBehaviors, "pod-behaviors", o.PodBehaviors,
		"install the custom resource PodBehavior, which says what many simulated pods do")
	f.StringVar(&o.SimulatedLogDir, "simulated-log-dir", o.SimulatedLogDir,
		"directory whose files simulated pods may log; whoever may create pods can read them")
	f.StringSliceVar(&o.StandInPorts, "stand-in-ports", o.StandInPorts,
		"loopback ports, such as 8080,9000-9010, at which processes stand in for simulated pods; whoever "+
			"may create pods can reach them")
	f.StringVar(&o.LoadBalancerRange, "load-balancer-range", o.LoadBalancerRange,
		"addresses of Services of type LoadBalancer, and of Ingresses and Gateways of the class "+
			"kinproc; none if empty")
}

func (o *Options) addAdmissionFlags(f *pflag.FlagSet) {
	admission := libraryAdmission(o)
	admission.AddFlags(f)
	flags.DescribePlugins(f, admission)
	notReady, unreachable := o.DefaultNotReadyTolerationSeconds, o.DefaultUnreachableTolerationSeconds
	f.Int64Var(notReady, "default-not-ready-toleration-seconds", *notReady,
		"seconds that pods stay on nodes that are not ready, unless a pod specifies otherwise")
	f.Int64Var(unreachable, "default-unreachable-toleration-seconds", *unreachable,
		"seconds that pods stay on nodes that cannot be reached, unless a pod specifies otherwise")
}
