package server

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/audit"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration"

	"github.com/kinproc/kinproc/server/internal/admission"
	"github.com/kinproc/kinproc/server/internal/allocation"
	"github.com/kinproc/kinproc/server/internal/controllers"
)

// Defaults of [Options]. A setting that kube-apiserver has too has the same default.
const (
	defaultBindAddress           = "127.0.0.1"
	defaultServiceClusterIPRange = "10.0.0.0/24"
	defaultServiceNodePortRange  = "30000-32767"
	defaultServiceAccountIssuer  = "https://kubernetes.default.svc"

	defaultMaxRequestsInFlight         = 400
	defaultMaxMutatingRequestsInFlight = 200

	defaultEventTTL          = time.Hour
	defaultRequestTimeout    = time.Minute
	defaultMinRequestTimeout = 1800
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
	// They need the certificates of [Server.EtcdClientFiles]. Port 0 picks a free one. Default: none.
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
	// ServiceAccountIssuer is a list. The first entry is the issuer of the service account tokens that
	// the control plane signs; tokens of the other issuers are accepted too. Default:
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
	// AuthorizationConfigFile holds an AuthorizationConfiguration, which replaces AuthorizationModes
	// and AuthorizationWebhook. Changes of the file take effect at once.
	AuthorizationConfigFile string
	// Admission selects and configures the admission plugins; see [NewAdmissionOptions]. Default:
	// the same as kube-apiserver.
	Admission *genericoptions.AdmissionOptions
	// DefaultNotReadyTolerationSeconds and DefaultUnreachableTolerationSeconds are how long pods
	// stay on nodes that are not ready or not reachable, unless a pod specifies otherwise. Default:
	// 300.
	DefaultNotReadyTolerationSeconds, DefaultUnreachableTolerationSeconds *int64
	// Audit configures where audit events go. Default: nowhere.
	Audit *genericoptions.AuditOptions
	// AuditBackend, if set, receives the audit events too. Without Audit.PolicyFile, these are the
	// metadata of every request that has ended, except reads and flow control by the control plane
	// itself.
	AuditBackend audit.Backend
	// RuntimeConfig enables and disables group versions and resources, for example api/beta=true.
	// Default: all GA versions are enabled.
	RuntimeConfig cliflag.ConfigurationMap
	// FeatureGates enable and disable features for the whole process. All gates of kube-apiserver are
	// known; those that cannot be switched here take the value that they have.
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
	// them start, run and end, though no container runs. Start does not wait for the nodes. Nodes of
	// an earlier start beyond this number are deleted. The program kinproc has 1 by default.
	SimulatedNodes int
	// SimulatedNodeCapacity is the capacity of each simulated node. Default: 32 CPUs, 256Gi of
	// memory, 1Ti of ephemeral storage and 110 pods; what is set here, which may be an extended
	// resource such as example.com/gpu, replaces or adds to these.
	SimulatedNodeCapacity corev1.ResourceList

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

func orDefault[T any](value *[]T, defaults ...T) {
	if len(*value) == 0 {
		*value = defaults
	}
}

// complete sets the defaults.
func (o *Options) complete() {
	set := func(value *string, to string) {
		if *value == "" {
			*value = to
		}
	}
	set(&o.BindAddress, defaultBindAddress)
	set(&o.ServiceClusterIPRange, defaultServiceClusterIPRange)
	set(&o.ServiceNodePortRange, defaultServiceNodePortRange)
	orDefault(&o.ServiceAccountIssuer, defaultServiceAccountIssuer)
	orDefault(&o.RequestHeader.UsernameHeaders, "X-Remote-User")
	orDefault(&o.RequestHeader.UIDHeaders, "X-Remote-Uid")
	orDefault(&o.RequestHeader.GroupHeaders, "X-Remote-Group")
	orDefault(&o.RequestHeader.ExtraHeaderPrefixes, "X-Remote-Extra-")
	if o.flags {
		orDefault(&o.Controllers, "*")
	} else { // a flag can be 0, which means no limit
		o.MaxRequestsInFlight = cmp.Or(o.MaxRequestsInFlight, defaultMaxRequestsInFlight)
		o.MaxMutatingRequestsInFlight = cmp.Or(o.MaxMutatingRequestsInFlight,
			defaultMaxMutatingRequestsInFlight)
		o.EventTTL = cmp.Or(o.EventTTL, defaultEventTTL)
		o.RequestTimeout = cmp.Or(o.RequestTimeout, defaultRequestTimeout)
		o.MinRequestTimeout = cmp.Or(o.MinRequestTimeout, defaultMinRequestTimeout)
	}
	o.completeAuthentication()
	o.completeAuthorization()
	if o.Admission == nil {
		o.Admission = NewAdmissionOptions()
	}
	for _, seconds := range []**int64{
		&o.DefaultNotReadyTolerationSeconds, &o.DefaultUnreachableTolerationSeconds,
	} {
		if *seconds == nil {
			*seconds = new(int64(admission.DefaultTolerationSeconds))
		}
	}
	if o.Audit == nil {
		o.Audit = genericoptions.NewAuditOptions()
	}
	if o.RuntimeConfig == nil {
		o.RuntimeConfig = cliflag.ConfigurationMap{}
	}
	if o.FeatureGates == nil {
		o.FeatureGates = map[string]bool{}
	}
}

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
	o.addHiddenFlags(sections.FlagSet("API"))
	o.Audit.AddFlags(sections.FlagSet("auditing"))
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
	o.addEncryptionFlags(f)
}

func (o *Options) addAuthFlags(f *pflag.FlagSet) {
	f.StringVar(&o.ClientCAFile, "client-ca-file", o.ClientCAFile,
		"additional certificate authorities whose client certificates are accepted")
	f.StringVar(&o.TokenAuthFile, "token-auth-file", o.TokenAuthFile,
		`CSV file of static bearer tokens: token,user,uid,"group1,group2"`)
	f.BoolVar(&o.EnableBootstrapTokenAuth, "enable-bootstrap-token-auth",
		o.EnableBootstrapTokenAuth,
		"accept tokens from secrets of the type bootstrap.kubernetes.io/token in kube-system")
	addNegated(f, &o.DisableAnonymous, "anonymous-auth",
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
	f.Var(cliflag.NewMapStringBool(&o.FeatureGates), "feature-gates",
		"features to enable or disable, such as A=true,B=false")
	f.StringVar(&o.ServiceClusterIPRange, "service-cluster-ip-range", o.ServiceClusterIPRange,
		"range of cluster IPs: a CIDR, or one of each IP family")
	f.StringVar(&o.ServiceNodePortRange, "service-node-port-range",
		o.ServiceNodePortRange, "range of node ports")
	addNegated(f, &o.DisallowPrivileged, "allow-privileged", "allow privileged containers")
	f.BoolVar(&o.EnableAggregatorRouting, "enable-aggregator-routing", o.EnableAggregatorRouting,
		"send requests for extension API servers and webhooks to endpoints, never to cluster IPs")
	f.BoolVar(&o.ProxyAllowLocalAddresses, "proxy-allow-local-addresses", o.ProxyAllowLocalAddresses,
		"let the proxies to services, pods and nodes reach loopback and link-local addresses, "+
			"such as the ports of this machine")
	f.StringSliceVar(&o.Controllers, "controllers", o.Controllers, describeControllers())
	// the usage names the default; otherwise it would be appended to the list
	f.Lookup("controllers").DefValue = "[]"
	o.addNodeFlags(f)
}

func (o *Options) addAdmissionFlags(f *pflag.FlagSet) {
	o.Admission.AddFlags(f)
	describePlugins(f, o.Admission)
	notReady, unreachable := o.DefaultNotReadyTolerationSeconds, o.DefaultUnreachableTolerationSeconds
	f.Int64Var(notReady, "default-not-ready-toleration-seconds", *notReady,
		"seconds that pods stay on nodes that are not ready, unless a pod specifies otherwise")
	f.Int64Var(unreachable, "default-unreachable-toleration-seconds", *unreachable,
		"seconds that pods stay on nodes that cannot be reached, unless a pod specifies otherwise")
}

// addNegated adds a boolean flag that is true when the option is false.
func addNegated(f *pflag.FlagSet, option *bool, name, usage string) {
	f.VarPF(negated{option}, name, "", usage).NoOptDefVal = "true"
}

// negated is the flag value for an option with the opposite meaning: the flag is true when the
// option is false.
type negated struct{ value *bool }

func (n negated) String() string {
	if n.value == nil {
		return "true"
	}
	return fmt.Sprint(!*n.value)
}

func (n negated) Set(s string) error {
	var on bool
	if _, err := fmt.Sscanf(s, "%t", &on); err != nil {
		return fmt.Errorf("%q is neither true nor false", s)
	}
	*n.value = !on
	return nil
}

func (n negated) Type() string     { return "bool" }
func (n negated) IsBoolFlag() bool { return true }

// name returns the name of an option in messages: its flag if the options are bound to flags,
// otherwise its field.
func (o *Options) name(field, flag string) string {
	if o.flags {
		return "--" + flag
	}
	return "Options." + field
}

// wrong returns an error that names an option.
func (o *Options) wrong(field, flag, format string, args ...any) error {
	return fmt.Errorf("%s: %w", o.name(field, flag), fmt.Errorf(format, args...))
}

// Validate returns everything that is wrong with the options, such as
//
//	Options.SecurePort: 70000 is not between 0 and 65535
//
// After [Options.AddFlags], the errors name flags instead of fields. Problems that do not show in
// the options themselves, such as an unreadable file, are reported by [Server.Start].
func (o *Options) Validate() []error {
	completed := *o
	completed.complete()
	return completed.validate()
}

// validate validates completed options.
func (o *Options) validate() []error {
	var errs []error
	wrong := func(field, flag, format string, args ...any) {
		errs = append(errs, o.wrong(field, flag, format, args...))
	}
	if o.SecurePort < 0 || o.SecurePort > 65535 {
		wrong("SecurePort", "secure-port", "%d is not between 0 and 65535", o.SecurePort)
	}
	if net.ParseIP(o.BindAddress) == nil {
		wrong("BindAddress", "bind-address", "%q is not an IP address", o.BindAddress)
	}
	errs = append(errs, o.validateServing()...)
	if o.From != nil && len(o.EtcdServers) > 0 {
		wrong("From", "from", "%s is set; only the embedded etcd can begin with a snapshot",
			o.name("EtcdServers", "etcd-servers"))
	}
	if o.ListenEtcd != "" {
		if err := o.validateListenEtcd(); err != nil {
			errs = append(errs, err)
		}
	}
	const together = "a certificate and its key go together: set both or neither"
	if o.ProxyClientCertFile == "" && o.ProxyClientKeyFile != "" {
		wrong("ProxyClientCertFile", "proxy-client-cert-file", together)
	}
	if o.ProxyClientCertFile != "" && o.ProxyClientKeyFile == "" {
		wrong("ProxyClientKeyFile", "proxy-client-key-file", together)
	}
	if o.EtcdCertFile == "" && o.EtcdKeyFile != "" {
		wrong("EtcdCertFile", "etcd-certfile", together)
	}
	if o.EtcdCertFile != "" && o.EtcdKeyFile == "" {
		wrong("EtcdKeyFile", "etcd-keyfile", together)
	}
	errs = slices.Concat(errs, o.validateEncryption(), o.validateAuthentication(),
		o.validateAuthorization(), o.validateTimes())
	if err := checkRanges(o.ServiceClusterIPRange, ""); err != nil {
		wrong("ServiceClusterIPRange", "service-cluster-ip-range", "%w", err)
	}
	if err := checkRanges("", o.ServiceNodePortRange); err != nil {
		wrong("ServiceNodePortRange", "service-node-port-range", "%w", err)
	}
	for _, err := range o.validateRuntimeConfig() {
		wrong("RuntimeConfig", "runtime-config", "%w", err)
	}
	if err := registeredGates().Check(o.FeatureGates); err != nil {
		wrong("FeatureGates", "feature-gates", "%w", err)
	}
	if _, err := controllers.Enabled(o.Controllers); err != nil {
		wrong("Controllers", "controllers", "%w", err)
	}
	if err := checkSimulatedNodes(o); err != nil {
		wrong("SimulatedNodes", "simulate-nodes", "%w", err)
	}
	if err := checkCapacity(o.SimulatedNodeCapacity); err != nil {
		wrong("SimulatedNodeCapacity", "simulated-node-capacity", "%w", err)
	}
	return slices.Concat(errs, o.libraryErrors("Admission", o.Admission.Validate()),
		o.libraryErrors("Audit", o.Audit.Validate()))
}

// libraryErrors adds the field's name to errors about options of the Kubernetes libraries. These
// errors already name the flag, so they are returned unchanged if the options are bound to flags.
func (o *Options) libraryErrors(field string, errs []error) []error {
	if o.flags {
		return errs
	}
	named := make([]error, len(errs))
	for i, err := range errs {
		named[i] = o.wrong(field, "", "%w", err)
	}
	return named
}

// checkRanges checks the ranges of cluster IPs and node ports. An empty range stands for the
// default.
func checkRanges(clusterIPs, nodePorts string) error {
	ranges, err := allocation.ParseOptions(clusterIPs, nodePorts)
	if err != nil {
		return err
	}
	return ranges.Validate()
}

// isCoreVersion reports whether a key of --runtime-config stands for version v1 of the core API
// group, which has no name, or for a resource of it.
func isCoreVersion(key string) bool {
	for _, version := range []string{"v1", "/v1", "api/v1"} {
		if key == version || strings.HasPrefix(key, version+"/") {
			return true
		}
	}
	return false
}

// switches returns the keys and values of --runtime-config that switch something. Those of the core
// API group cannot.
func (o *Options) switches() cliflag.ConfigurationMap {
	switches := maps.Clone(o.RuntimeConfig)
	maps.DeleteFunc(switches, func(key, _ string) bool { return isCoreVersion(key) })
	return switches
}

// validateRuntimeConfig returns an error for each API group or version that Kubernetes never had.
// Removed versions and unknown resources are no errors, because another release may have them.
func (o *Options) validateRuntimeConfig() []error {
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(o.RuntimeConfig)) {
		parts := strings.Split(key, "/")
		switch {
		case isCoreVersion(key):
			if on, err := strconv.ParseBool(o.RuntimeConfig[key]); err == nil && !on {
				errs = append(errs, fmt.Errorf(
					"%q: the server itself needs the core API group, which cannot be switched off", key))
			}
		case len(parts) != 2 && len(parts) != 3:
			errs = append(errs, fmt.Errorf("%q: must look like batch/v1, batch/v1/jobs or api/all", key))
		case parts[0] == "api":
			if !slices.Contains([]string{"all", "ga", "beta", "alpha"}, parts[1]) || len(parts) == 3 {
				errs = append(errs,
					fmt.Errorf("%q: must be one of api/all, api/ga, api/beta, api/alpha, api/v1", key))
			}
		case parts[0] == apiextensions.GroupName || parts[0] == apiregistration.GroupName:
			if parts[1] != "v1" && parts[1] != "v1beta1" {
				errs = append(errs, fmt.Errorf("%q: the API group %q has no version %q",
					key, parts[0], parts[1]))
			}
		case !clientscheme.Scheme.IsGroupRegistered(parts[0]):
			errs = append(errs, fmt.Errorf("%q: there is no API group %q", key, parts[0]))
		case !clientscheme.Scheme.IsVersionRegistered(schema.GroupVersion{
			Group:   parts[0],
			Version: parts[1],
		}):
			errs = append(errs, fmt.Errorf("%q: the API group %q has no version %q",
				key, parts[0], parts[1]))
		}
		if value := o.RuntimeConfig[key]; value != "" {
			if _, err := strconv.ParseBool(value); err != nil {
				errs = append(errs, fmt.Errorf("%q: %q is neither true nor false", key, value))
			}
		}
	}
	return errs
}
