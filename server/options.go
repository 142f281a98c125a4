package server

import (
	"net"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apiserveradmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/audit"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/kinproc/kinproc/chain"
	"github.com/kinproc/kinproc/server/internal/admission"
	"github.com/kinproc/kinproc/server/internal/auth"
)

// Options configure a control plane. The zero value suits tests: the control plane keeps nothing
// and listens on a free port of 127.0.0.1. A field that corresponds to a kube-apiserver flag has
// the same meaning.
type Options struct {
	// DataDir holds etcd's data, keys and certificates. It must belong to the caller alone: Start
	// refuses files that other users own or could have written, and removes other users' access to
	// the rest. If DataDir is empty, Start uses a temporary directory, which Stop removes, and etcd
	// does not wait for the disk.
	DataDir string

	// From, if set, is the state to begin with: all objects with their revisions, UIDs and
	// addresses. Keys and certificates are new, unless DataDir has some. DataDir must not hold
	// etcd's data yet, and EtcdServers must be empty.
	From *Snapshot
	// ReadOnly refuses every request that would change something with 403, dry runs too. Reviews,
	// which store nothing, and tokens of service accounts still work. The control plane itself
	// writes nothing either: no control loops run, and objects that it would otherwise ensure may
	// be missing.
	ReadOnly bool

	// BindAddress is the IP address to listen on. Default: 127.0.0.1.
	BindAddress string
	// SecurePort is the port to listen on; 0 picks a free one.
	SecurePort int
	// Listener, if set, is used instead of BindAddress and SecurePort. Stop closes it.
	Listener net.Listener
	// Network, if set, is where the control plane listens, and where it reaches webhooks and
	// extension API servers. No socket is opened: [Server.RESTConfig] and [Server.User] return
	// clients in process, as [Server.InProcessConfig] does, and other programs cannot reach the
	// control plane. This is for tests in a bubble of [testing/synctest].
	Network *Network
	// AdvertiseAddress is the IP address of the endpoint of the service default/kubernetes.
	// Default: BindAddress or, if that is unspecified, the address of the interface with the
	// default route.
	AdvertiseAddress string
	// TLSCertFile and TLSPrivateKeyFile hold the serving certificate, followed by its authorities
	// if any, and its key. [Server.RESTConfig] and [Server.Kubeconfig] do not depend on them.
	// Default: a certificate of the control plane's own authority.
	TLSCertFile, TLSPrivateKeyFile string
	// CertDir holds the serving certificate and its key in apiserver.crt and apiserver.key, unless
	// TLSCertFile is set. Start writes a self-signed pair if the files do not exist.
	CertDir string
	// TLSMinVersion is the oldest version of TLS to accept, such as VersionTLS13. Default:
	// VersionTLS12.
	TLSMinVersion string
	// TLSCipherSuites are the names of the cipher suites to accept up to TLS 1.2. Default: Go's.
	TLSCipherSuites []string

	// EtcdServers are the URLs of an external etcd cluster to use instead of the embedded etcd. Any
	// number of control planes can share it. They elect the one that runs the control loops, and
	// another one takes over some four seconds after that one has died. Give them the same PKIDir.
	EtcdServers []string
	// EtcdCAFile, EtcdCertFile and EtcdKeyFile configure TLS with EtcdServers.
	EtcdCAFile, EtcdCertFile, EtcdKeyFile string
	// ListenEtcd is a loopback address, such as 127.0.0.1:2379, at which the embedded etcd serves
	// clients outside the process, such as extension API servers that store their objects in etcd.
	// They need the certificates of [Server.EtcdClientFiles]. Port 0 picks a free one. Default:
	// none.
	ListenEtcd string
	// EtcdPrefix is the prefix of all keys in etcd. Default: /registry.
	EtcdPrefix string
	// EncryptionProviderConfig is a file that says which resources are encrypted in etcd, and how.
	// Then there are no snapshots and resets. Default: nothing is encrypted.
	EncryptionProviderConfig string
	// EncryptionProviderConfigAutomaticReload lets changes of that file take effect at once.
	EncryptionProviderConfigAutomaticReload bool
	// EventTTL is how long events are kept. Default: an hour.
	EventTTL time.Duration
	// HistoryKept is how long etcd keeps old versions of objects, for watches that are behind and
	// for kinproc history: at least for this time and at most for twice as long, but never more
	// than 100,000 revisions, and 256 MiB or a quarter of QuotaBackendBytes. Default: an hour.
	HistoryKept time.Duration
	// QuotaBackendBytes is the size that the database of the embedded etcd has at most. Old
	// versions are removed before that. When objects alone fill it, requests that would add
	// something get an error with the reason StorageError, and reads and deletions go on. Default:
	// 2 GiB, as in etcd. At least 16 MiB.
	QuotaBackendBytes int64
	// PKIDir holds the certificate authorities and the service account key, under kubeadm's names:
	// ca.crt, ca.key, front-proxy-ca.crt, front-proxy-ca.key, sa.key and sa.pub. Start creates what
	// is missing. Control planes that share an etcd need the same ones, in one directory or in
	// copies, so that clients can go from one to another. PKIDir must belong to the caller alone.
	// Default: a directory in DataDir.
	PKIDir string

	// ClientCAFile holds additional certificate authorities whose client certificates are accepted.
	ClientCAFile string
	// TokenAuthFile is a CSV file of static bearer tokens: token,user,uid,"group1,group2".
	TokenAuthFile string
	// EnableBootstrapTokenAuth accepts the bootstrap tokens of kubeadm: secrets of the type
	// bootstrap.kubernetes.io/token in the namespace kube-system.
	EnableBootstrapTokenAuth bool
	// DisableAnonymous refuses requests without credentials. Otherwise such requests are treated as
	// coming from system:anonymous, except with AlwaysAllow among AuthorizationModes, which refuses
	// them in any case; see [Options.Warnings].
	DisableAnonymous bool
	// APIAudiences are the audiences of tokens for this server. Default: the service account
	// issuer.
	APIAudiences []string
	// ServiceAccountIssuer is a list. The first entry is the issuer of the service account tokens
	// that the control plane signs; tokens of the other issuers are accepted too. Default:
	// https://kubernetes.default.svc.
	ServiceAccountIssuer []string
	// ServiceAccountSigningKeyFile holds the key that signs service account tokens. Default: a key
	// in DataDir.
	ServiceAccountSigningKeyFile string
	// ServiceAccountKeyFiles hold additional keys that verify service account tokens.
	ServiceAccountKeyFiles []string
	// ServiceAccountMaxTokenExpiration limits the lifetime of new tokens. Default: no limit.
	ServiceAccountMaxTokenExpiration time.Duration
	// ServiceAccountJWKSURI replaces the URI of the key set in the OpenID configuration. Default: a
	// URI at the server's own address.
	ServiceAccountJWKSURI string
	// RequestHeader configures the proxies that may name the user of a request. Default: the
	// proxies whose certificates were signed by the aggregator's own authority.
	RequestHeader RequestHeaderOptions
	// ProxyClientCertFile and ProxyClientKeyFile identify the aggregator to extension API servers.
	// Default: a generated pair.
	ProxyClientCertFile, ProxyClientKeyFile string
	// OIDC is an OpenID Connect provider whose tokens are accepted. Default: none.
	OIDC OIDCOptions
	// AuthenticationConfigFile holds an AuthenticationConfiguration: issuers whose tokens are
	// accepted, and what anonymous users may reach. Changes of the file take effect at once.
	AuthenticationConfigFile string
	// TokenWebhook is asked about tokens that nothing else accepts. Default: none.
	TokenWebhook TokenWebhookOptions

	// AuthorizationModes are the authorizers to ask, in order: RBAC, Node, Webhook, AlwaysAllow,
	// AlwaysDeny. Default: RBAC.
	AuthorizationModes []string
	// AuthorizationWebhook is asked in the mode Webhook.
	AuthorizationWebhook AuthorizationWebhookOptions
	// AuthorizationConfigFile holds an AuthorizationConfiguration, which replaces
	// AuthorizationModes and AuthorizationWebhook. Changes of the file take effect at once.
	AuthorizationConfigFile string
	// Admission selects and configures the admission plugins; see [NewAdmissionOptions]. Default:
	// the same as kube-apiserver.
	Admission *AdmissionOptions
	// DefaultNotReadyTolerationSeconds and DefaultUnreachableTolerationSeconds are how long pods
	// stay on nodes that are not ready or not reachable, unless a pod specifies otherwise. Default:
	// 300.
	DefaultNotReadyTolerationSeconds, DefaultUnreachableTolerationSeconds *int64
	// Audit configures where audit events go; see [NewAuditOptions]. Default: nowhere.
	Audit *AuditOptions
	// AuditBackend, if set, receives the audit events too. Without Audit.PolicyFile, these are the
	// metadata of every request that has ended, except reads and flow control by the control plane
	// itself.
	AuditBackend audit.Backend
	// RuntimeConfig enables and disables group versions and resources, for example api/beta=true.
	// Default: all GA versions are enabled.
	RuntimeConfig cliflag.ConfigurationMap
	// EmulatedVersion is the minor version of Kubernetes to behave as, such as "1.35": its kinds,
	// fields, feature gates and control loops; see [EmulatedVersions]. It is the same for all
	// servers of a process. Default: that of KubernetesVersion. Source: kube-apiserver's
	// --emulated-version (KEP-4330).
	EmulatedVersion string
	// FeatureGates enable and disable features for the whole process. All gates of kube-apiserver
	// are known; those that cannot be switched here take the value that they have.
	FeatureGates map[string]bool

	// ServiceClusterIPRange is the range of cluster IPs: a CIDR, or one of each IP family separated
	// by a comma. Default: 10.0.0.0/24.
	ServiceClusterIPRange string
	// ServiceNodePortRange is the range of node ports. Default: 30000-32767.
	ServiceNodePortRange string
	// EnableAggregatorRouting sends requests for extension API servers and webhooks only to the
	// endpoints of their services. By default, requests go to the cluster IP if a service has no
	// endpoint slices.
	EnableAggregatorRouting bool
	// ProxyAllowLocalAddresses lets the proxies to services, pods and nodes connect to loopback,
	// link-local, multicast and unspecified addresses. Anyone who can use such a proxy and write
	// endpoints can then reach every port of the machine. Extension API servers and webhooks may be
	// at loopback addresses in any case. Default: refused.
	ProxyAllowLocalAddresses bool
	// DisallowPrivileged refuses pods, and templates of pods, with privileged containers. This is
	// the default of kube-apiserver, but nearly every cluster allows them.
	DisallowPrivileged bool
	// MaxRequestsInFlight and MaxMutatingRequestsInFlight add up to the number of concurrent
	// requests, not counting watches, which API Priority and Fairness divides. Without it, they
	// limit requests that read and requests that write. Default: 400 and 200.
	MaxRequestsInFlight, MaxMutatingRequestsInFlight int
	// DisablePriorityAndFairness switches API Priority and Fairness off.
	DisablePriorityAndFairness bool
	// RequestTimeout is how long a request may take that is not long-running. Default: a minute.
	RequestTimeout time.Duration
	// MinRequestTimeout is the shortest time, in seconds, after which the server ends a watch that
	// asks for no timeout. The longest is twice as long. Default: 1800.
	MinRequestTimeout int
	// DisableProfiling removes the profiles at /debug/pprof.
	DisableProfiling bool

	// Controllers selects the control loops, in the syntax of kube-controller-manager: "*" for all,
	// "name", "-name". By default, all run but those that bring workloads to life: a test of a
	// controller has its objects to itself, and its Deployments have no pods unless it makes them.
	// The flag --controllers is "*" by default.
	Controllers []string

	// SimulatedNodes is the number of nodes to simulate. They are ready, and pods that are bound to
	// them start, run and end, though no container runs. Start does not wait for the nodes. Nodes
	// of an earlier start beyond this number are deleted. The program kinproc has 1 by default.
	SimulatedNodes int
	// SimulatedNodeCapacity is the capacity of each simulated node. Default: 32 CPUs, 256Gi of
	// memory, 1Ti of ephemeral storage and 110 pods; what is set here, which may be an extended
	// resource such as example.com/gpu, replaces or adds to these.
	SimulatedNodeCapacity corev1.ResourceList
	// SimulatedNodeKinds are further nodes to simulate, with labels, taints and a capacity of their
	// own. Default: none.
	SimulatedNodeKinds []SimulatedNodeKind
	// SimulateNodesMatching is a selector of labels, such as type=kwok: nodes that others make are
	// simulated too if it matches them. Default: none. Whatever it is, that also goes for nodes
	// with the label kinproc.dev/simulated=true, and for those with the annotation or label
	// kwok.x-k8s.io/node=fake. What their makers said about them stays.
	SimulateNodesMatching string
	// SimulatedMetrics serves metrics.k8s.io, custom.metrics.k8s.io and external.metrics.k8s.io for
	// the pods on simulated nodes: what they use follows from annotations. An APIService of another
	// server wins. It has no effect if SimulatedNodes, SimulatedNodeKinds and SimulateNodesMatching
	// are all zero. The program kinproc has it on by default.
	SimulatedMetrics bool
	// PodBehaviors installs the custom resource PodBehavior, whose objects say what many simulated
	// pods do. Default: it is not installed.
	PodBehaviors bool
	// SimulatedLogDir is a directory whose files simulated pods may log. Whoever may create pods
	// and read their logs can read each file below it. Default: none.
	SimulatedLogDir string
	// StandInPorts are loopback ports of this machine, such as 8080 or 9000-9010, at which
	// processes stand in for simulated pods: an annotation of a pod may send the connections to a
	// port of the pod there. Whoever may create pods can reach each of them. Default: none.
	StandInPorts []string
	// LoadBalancerRange is the range of the addresses of Services of type LoadBalancer, and of
	// Ingresses and Gateways of the class kinproc, such as 192.0.2.0/24. Nothing listens there. The
	// loops that assign them are among those of workloads. Default: none, and so these loops are
	// off. The program kinproc has 192.0.2.0/24, a range for documentation, by default.
	LoadBalancerRange string

	// Log receives the log of the control plane and its etcd, and what the Kubernetes libraries log
	// to the logger in their context. The zero value discards all of that. Messages that libraries
	// write to klog directly are not included: klog belongs to the process, and a control plane
	// leaves it alone. To silence klog, call klog.SetLogger(logr.Discard()) before the first Start.
	Log logr.Logger

	// flags is set when the options are bound to flags.
	flags bool
	// ineffective are the flags that were given but have no effect, each with the reason.
	ineffective []string
}

// SimulatedNodeKind is a kind of simulated nodes. They are named simulated-NAME-0, simulated-NAME-1
// and so on, and have the label kinproc.dev/node-kind with the name.
type SimulatedNodeKind struct {
	// Name has at most 40 small letters, digits and dashes.
	Name string
	// Count is the number of nodes.
	Count int
	// Labels and Taints are added to those of every node, once at each start: what somebody changes
	// afterwards stays until the next start.
	Labels map[string]string
	Taints []corev1.Taint
	// Capacity replaces or adds to Options.SimulatedNodeCapacity.
	Capacity corev1.ResourceList
}

// RequestHeaderOptions configure the proxies that may name, in request headers, the user whose
// request they forward.
type RequestHeaderOptions struct {
	// ClientCAFile holds the authorities that sign the proxies' certificates.
	ClientCAFile string
	// AllowedNames are the common names of those certificates. If AllowedNames is empty, any name
	// is accepted; that is an error if one of the authorities signs client certificates too.
	AllowedNames []string
	// UsernameHeaders, UIDHeaders, GroupHeaders and ExtraHeaderPrefixes default to X-Remote-User,
	// X-Remote-Uid, X-Remote-Group and X-Remote-Extra-.
	UsernameHeaders, UIDHeaders, GroupHeaders, ExtraHeaderPrefixes []string
}

// OIDCOptions configure an OpenID Connect provider, whose tokens are accepted.
type OIDCOptions struct {
	// IssuerURL is the URL of the provider; it begins with https. ClientID is the audience that a
	// token must have.
	IssuerURL, ClientID string
	// CAFile holds the certificate authorities of the provider. Default: those of the machine.
	CAFile string
	// UsernameClaim is the claim with the name of the user. Default: sub.
	UsernameClaim string
	// UsernamePrefix is put before the name; "-" stands for none. Default: IssuerURL and "#", or
	// none if UsernameClaim is email.
	UsernamePrefix string
	// GroupsClaim is the claim with the groups of the user, and GroupsPrefix is put before each.
	GroupsClaim, GroupsPrefix string
	// SigningAlgs are the accepted algorithms. Default: RS256.
	SigningAlgs []string
	// RequiredClaims are the claims that a token must have, with their values.
	RequiredClaims map[string]string
}

// TokenWebhookOptions configure a webhook that is asked who the bearer of a token is.
type TokenWebhookOptions struct {
	// ConfigFile is a kubeconfig that leads to the webhook.
	ConfigFile string
	// Version is the version of the TokenReviews. Default: v1beta1, as in kube-apiserver.
	Version string
	// CacheTTL is how long answers are kept. Default: 2 minutes.
	CacheTTL time.Duration
}

// AuthorizationWebhookOptions configure the webhook that is asked who may do what.
type AuthorizationWebhookOptions struct {
	// ConfigFile is a kubeconfig that leads to the webhook.
	ConfigFile string
	// Version is the version of the SubjectAccessReviews. Default: v1beta1, as in kube-apiserver.
	Version string
	// AuthorizedTTL and UnauthorizedTTL are how long answers are kept. Default: 5 minutes and 30
	// seconds.
	AuthorizedTTL, UnauthorizedTTL time.Duration
}

// NewAdmissionOptions returns kube-apiserver's admission plugins, in its order and with its
// defaults. Change the result before you assign it to [Options].Admission: EnablePlugins,
// DisablePlugins and ConfigFile correspond to the flags --enable-admission-plugins,
// --disable-admission-plugins and --admission-control-config-file.
func NewAdmissionOptions() *AdmissionOptions {
	o := admission.NewOptions()
	o.Decorators = append(o.Decorators, apiserveradmission.DecoratorFunc(chain.TraceAdmission))
	return (*AdmissionOptions)(o)
}

// AdmissionOptions has the fields of AdmissionOptions in k8s.io/apiserver/pkg/server/options. It
// lacks the methods: their types lead to all informers of client-go, which would take a second of
// each compilation of a test; see [configs].
type AdmissionOptions genericoptions.AdmissionOptions

// NewAuditOptions returns kube-apiserver's defaults, which send audit events nowhere. Change the
// result before you assign it to [Options].Audit: PolicyFile, LogOptions and WebhookOptions
// correspond to the flags --audit-policy-file, --audit-log-… and --audit-webhook-….
func NewAuditOptions() *AuditOptions { return (*AuditOptions)(genericoptions.NewAuditOptions()) }

// AuditOptions has the fields of AuditOptions in k8s.io/apiserver/pkg/server/options, and no
// methods, as [AdmissionOptions].
type AuditOptions genericoptions.AuditOptions

func libraryAdmission(o *Options) *genericoptions.AdmissionOptions {
	return (*genericoptions.AdmissionOptions)(o.Admission)
}

func libraryAudit(o *Options) *genericoptions.AuditOptions {
	return (*genericoptions.AuditOptions)(o.Audit)
}

// anonymous reports whether requests without credentials are accepted as those of system:anonymous.
// As in kube-apiserver, they are refused if everybody may do everything, even if the options allow
// them.
func (o *Options) anonymous() bool {
	return !o.DisableAnonymous && !slices.Contains(o.AuthorizationModes, auth.ModeAlwaysAllow)
}

// Warnings returns, in human-readable sentences, which combinations of options are dangerous and
// what the control plane does about them, and which flags have no effect. The control plane does
// not log or print the warnings; that is left to the caller.
func (o *Options) Warnings() []string {
	completed := *o
	o = &completed
	o.complete()
	warnings := slices.Clone(o.ineffective)
	if gates, err := o.gates(); err == nil {
		for _, sentence := range gates.Ineffective(o.FeatureGates) {
			warnings = append(warnings, o.name(&o.FeatureGates)+": "+sentence)
		}
	}
	if o.DisableAnonymous || o.anonymous() {
		return warnings
	}
	return append(warnings, o.name(&o.AuthorizationModes)+
		" has AlwaysAllow, so requests without credentials are refused: "+
		"otherwise anyone who can reach the port would be an administrator")
}
