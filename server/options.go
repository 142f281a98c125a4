package server

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration"

	"github.com/kinproc/kinproc/server/internal/admission"
	"github.com/kinproc/kinproc/server/internal/allocation"
	"github.com/kinproc/kinproc/server/internal/controllers"
)

// The defaults of Options, kube-apiserver's where it has the same thing.
const (
	DefaultBindAddress           = "127.0.0.1"
	DefaultServiceClusterIPRange = "10.0.0.0/24"
	DefaultServiceNodePortRange  = "30000-32767"
	DefaultServiceAccountIssuer  = "https://kubernetes.default.svc"
)

// Options say what a control plane is like. The zero value is one for tests: nothing is kept, and it listens on a free port of 127.0.0.1.
// Where a field has a counterpart among kube-apiserver's flags, it means the same.
type Options struct {
	// DataDir is where etcd's data, keys and certificates are kept. It must be the caller's alone: Start refuses what others own or could
	// have written there, and closes the rest to them. If empty, all is in a temporary directory that Stop removes, and etcd does not wait
	// for the disk.
	DataDir string

	// BindAddress is the address to listen on. Default: 127.0.0.1.
	BindAddress string
	// SecurePort is the port to listen on; 0 picks a free one.
	SecurePort int
	// Listener is used instead of BindAddress and SecurePort if it is set. Stop closes it.
	Listener net.Listener

	// EtcdServers are the URLs of an external etcd cluster, used instead of the embedded one.
	EtcdServers []string
	// EtcdCAFile, EtcdCertFile and EtcdKeyFile are for TLS with EtcdServers.
	EtcdCAFile, EtcdCertFile, EtcdKeyFile string
	// EtcdPrefix is what all keys begin with. Default: /registry.
	EtcdPrefix string

	// ClientCAFile holds further certificate authorities whose client certificates are accepted.
	ClientCAFile string
	// TokenAuthFile is a CSV file of static bearer tokens: token,user,uid,"group1,group2".
	TokenAuthFile string
	// DisableAnonymous refuses requests without credentials, which are otherwise those of system:anonymous. With AlwaysAllow among the
	// AuthorizationModes they are refused in any case; see [Options.Warnings].
	DisableAnonymous bool
	// APIAudiences are the audiences of tokens for this server. Default: the service account issuer.
	APIAudiences []string
	// ServiceAccountIssuer is the issuer of the service account tokens signed here, and further ones that are accepted. Default:
	// https://kubernetes.default.svc.
	ServiceAccountIssuer []string
	// ServiceAccountSigningKeyFile holds the key that signs service account tokens. Default: one of the data directory.
	ServiceAccountSigningKeyFile string
	// ServiceAccountKeyFiles hold further keys that verify service account tokens.
	ServiceAccountKeyFiles []string
	// ServiceAccountMaxTokenExpiration bounds the life of the tokens issued. Default: unbounded.
	ServiceAccountMaxTokenExpiration time.Duration
	// ServiceAccountJWKSURI is announced in the OpenID configuration instead of the server's own address.
	ServiceAccountJWKSURI string
	// RequestHeader configures the proxies that may say whom they speak for. By default the aggregator's own certificate authority signs
	// them.
	RequestHeader RequestHeaderOptions
	// ProxyClientCertFile and ProxyClientKeyFile identify the aggregator to extension API servers. Default: a pair made here.
	ProxyClientCertFile, ProxyClientKeyFile string

	// AuthorizationModes are asked in order: RBAC, Node, AlwaysAllow, AlwaysDeny. Default: RBAC.
	AuthorizationModes []string
	// Admission chooses and configures the admission plugins. Default: as kube-apiserver.
	Admission *genericoptions.AdmissionOptions
	// DefaultNotReadyTolerationSeconds and DefaultUnreachableTolerationSeconds are how long pods stay on nodes that are not ready or that
	// cannot be reached, unless they say something else. Default: 300.
	DefaultNotReadyTolerationSeconds, DefaultUnreachableTolerationSeconds *int64
	// Audit says where audit events go. Default: nowhere.
	Audit *genericoptions.AuditOptions
	// RuntimeConfig switches group versions and resources on and off, such as api/beta=true. Default: all GA versions.
	RuntimeConfig cliflag.ConfigurationMap
	// FeatureGates are set for the whole process.
	FeatureGates map[string]bool

	// ServiceClusterIPRange is where cluster IPs are taken from: a CIDR, or two of both IP families. Default: 10.0.0.0/24.
	ServiceClusterIPRange string
	// ServiceNodePortRange is where node ports are taken from. Default: 30000-32767.
	ServiceNodePortRange string
	// EnableAggregatorRouting never sends requests for extension API servers and webhooks to the cluster IPs of their services. Default:
	// only if a service has no endpoint slices.
	EnableAggregatorRouting bool
	// ProxyAllowLocalAddresses lets the proxies to services, pods and nodes connect to loopback, link-local, multicast and unspecified
	// addresses. Whoever may use such a proxy and write endpoints then reaches every port of the machine that the server runs on. It
	// does not matter to extension API servers and webhooks, which may always be on loopback addresses. Default: refused.
	ProxyAllowLocalAddresses bool
	// MaxRequestsInFlight bounds the requests that are served at a time, watches aside. Default: 600.
	MaxRequestsInFlight int

	// Controllers are the control loops to run, in kube-controller-manager's syntax: "*" for all, "name", "-name". Default: all.
	Controllers []string

	// Verbosity is how much the Kubernetes libraries and etcd log to standard error: 0 is nothing. The first control plane of a process
	// decides for all.
	Verbosity int
}

// RequestHeaderOptions say which proxies may name, in request headers, the user whose request they pass on.
type RequestHeaderOptions struct {
	// ClientCAFile holds the authorities of the proxies' certificates.
	ClientCAFile string
	// AllowedNames are the common names of those certificates; any if empty, which is an error if one of the authorities signs client
	// certificates too.
	AllowedNames []string
	// UsernameHeaders, UIDHeaders, GroupHeaders and ExtraHeaderPrefixes default to X-Remote-User, X-Remote-Uid, X-Remote-Group and
	// X-Remote-Extra-.
	UsernameHeaders, UIDHeaders, GroupHeaders, ExtraHeaderPrefixes []string
}

func orDefault[T any](value *[]T, defaults ...T) {
	if len(*value) == 0 {
		*value = defaults
	}
}

// complete fills in the defaults.
func (o *Options) complete() {
	set := func(value *string, to string) {
		if *value == "" {
			*value = to
		}
	}
	set(&o.BindAddress, DefaultBindAddress)
	set(&o.ServiceClusterIPRange, DefaultServiceClusterIPRange)
	set(&o.ServiceNodePortRange, DefaultServiceNodePortRange)
	orDefault(&o.ServiceAccountIssuer, DefaultServiceAccountIssuer)
	orDefault(&o.AuthorizationModes, "RBAC")
	orDefault(&o.Controllers, "*")
	orDefault(&o.RequestHeader.UsernameHeaders, "X-Remote-User")
	orDefault(&o.RequestHeader.UIDHeaders, "X-Remote-Uid")
	orDefault(&o.RequestHeader.GroupHeaders, "X-Remote-Group")
	orDefault(&o.RequestHeader.ExtraHeaderPrefixes, "X-Remote-Extra-")
	if o.MaxRequestsInFlight == 0 {
		o.MaxRequestsInFlight = 600
	}
	if o.Admission == nil {
		o.Admission = admission.NewOptions()
	}
	for _, seconds := range []**int64{&o.DefaultNotReadyTolerationSeconds, &o.DefaultUnreachableTolerationSeconds} {
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

// AddFlags binds the options to flags, by section.
func (o *Options) AddFlags(sections *cliflag.NamedFlagSets) {
	o.complete()
	o.addServingFlags(sections.FlagSet("serving"))
	o.addEtcdFlags(sections.FlagSet("etcd"))
	o.addAuthFlags(sections.FlagSet("authentication and authorization"))
	o.addServiceAccountFlags(sections.FlagSet("service accounts"))
	o.addAPIFlags(sections.FlagSet("API"))
	o.addAdmissionFlags(sections.FlagSet("admission"))
	o.Audit.AddFlags(sections.FlagSet("auditing"))
}

func (o *Options) addServingFlags(f *pflag.FlagSet) {
	f.StringVar(&o.DataDir, "data-dir", o.DataDir, "directory of etcd's data, keys and certificates")
	f.StringVar(&o.BindAddress, "bind-address", o.BindAddress, "address to listen on")
	f.IntVar(&o.SecurePort, "secure-port", o.SecurePort, "port to listen on; 0 picks a free one")
	f.IntVar(&o.MaxRequestsInFlight, "max-requests-inflight", o.MaxRequestsInFlight, "requests that are served at a time, watches aside")
	f.IntVarP(&o.Verbosity, "v", "v", o.Verbosity, "how much to log; 0 is nothing")
}

func (o *Options) addEtcdFlags(f *pflag.FlagSet) {
	f.StringSliceVar(&o.EtcdServers, "etcd-servers", o.EtcdServers, "URLs of an external etcd cluster, used instead of the embedded one")
	f.StringVar(&o.EtcdCAFile, "etcd-cafile", o.EtcdCAFile, "certificate authorities of the external etcd")
	f.StringVar(&o.EtcdCertFile, "etcd-certfile", o.EtcdCertFile, "client certificate for the external etcd")
	f.StringVar(&o.EtcdKeyFile, "etcd-keyfile", o.EtcdKeyFile, "key of the client certificate for the external etcd")
	f.StringVar(&o.EtcdPrefix, "etcd-prefix", o.EtcdPrefix, "what all keys in etcd begin with; /registry if empty")
}

func (o *Options) addAuthFlags(f *pflag.FlagSet) {
	f.StringVar(&o.ClientCAFile, "client-ca-file", o.ClientCAFile, "further certificate authorities whose client certificates are accepted")
	f.StringVar(&o.TokenAuthFile, "token-auth-file", o.TokenAuthFile, `CSV file of static bearer tokens: token,user,uid,"group1,group2"`)
	f.Var(negated{&o.DisableAnonymous}, "anonymous-auth", "take requests without credentials for those of system:anonymous; never with AlwaysAllow")
	f.StringSliceVar(&o.AuthorizationModes, "authorization-mode", o.AuthorizationModes, "authorizers to ask, in order: RBAC, Node, AlwaysAllow, AlwaysDeny")
	r := &o.RequestHeader
	f.StringVar(&r.ClientCAFile, "requestheader-client-ca-file", r.ClientCAFile, "certificate authorities of proxies that may name users in headers")
	f.StringSliceVar(&r.AllowedNames, "requestheader-allowed-names", r.AllowedNames, "common names of such proxies; any if empty, for authorities that sign no client certificates")
	f.StringSliceVar(&r.UsernameHeaders, "requestheader-username-headers", r.UsernameHeaders, "headers with the user's name")
	f.StringSliceVar(&r.UIDHeaders, "requestheader-uid-headers", r.UIDHeaders, "headers with the user's UID")
	f.StringSliceVar(&r.GroupHeaders, "requestheader-group-headers", r.GroupHeaders, "headers with the user's groups")
	f.StringSliceVar(&r.ExtraHeaderPrefixes, "requestheader-extra-headers-prefix", r.ExtraHeaderPrefixes, "what headers with more of the user begin with")
	f.StringVar(&o.ProxyClientCertFile, "proxy-client-cert-file", o.ProxyClientCertFile, "certificate that identifies the aggregator to extension API servers")
	f.StringVar(&o.ProxyClientKeyFile, "proxy-client-key-file", o.ProxyClientKeyFile, "key of that certificate")
}

func (o *Options) addServiceAccountFlags(f *pflag.FlagSet) {
	f.StringSliceVar(&o.APIAudiences, "api-audiences", o.APIAudiences, "audiences of tokens for this server; the issuer if empty")
	f.StringSliceVar(&o.ServiceAccountIssuer, "service-account-issuer", o.ServiceAccountIssuer, "issuer of the tokens signed here, and others that are accepted")
	f.StringVar(&o.ServiceAccountSigningKeyFile, "service-account-signing-key-file", o.ServiceAccountSigningKeyFile, "key that signs tokens; one of the data directory if empty")
	f.StringSliceVar(&o.ServiceAccountKeyFiles, "service-account-key-file", o.ServiceAccountKeyFiles, "further keys that verify tokens")
	f.DurationVar(&o.ServiceAccountMaxTokenExpiration, "service-account-max-token-expiration", o.ServiceAccountMaxTokenExpiration, "longest life of a token; unbounded if 0")
	f.StringVar(&o.ServiceAccountJWKSURI, "service-account-jwks-uri", o.ServiceAccountJWKSURI, "URI of the key set in the OpenID configuration")
}

func (o *Options) addAPIFlags(f *pflag.FlagSet) {
	f.Var(&o.RuntimeConfig, "runtime-config", "group versions and resources to switch on and off, such as api/beta=true or batch/v1/jobs=false")
	f.Var(cliflag.NewMapStringBool(&o.FeatureGates), "feature-gates", "features to switch on and off, such as A=true,B=false")
	f.StringVar(&o.ServiceClusterIPRange, "service-cluster-ip-range", o.ServiceClusterIPRange, "where cluster IPs are taken from: a CIDR, or two of both IP families")
	f.StringVar(&o.ServiceNodePortRange, "service-node-port-range", o.ServiceNodePortRange, "where node ports are taken from")
	f.BoolVar(&o.EnableAggregatorRouting, "enable-aggregator-routing", o.EnableAggregatorRouting, "send requests for extension API servers to endpoints and never to cluster IPs")
	f.BoolVar(&o.ProxyAllowLocalAddresses, "proxy-allow-local-addresses", o.ProxyAllowLocalAddresses, "let the proxies to services, pods and nodes reach loopback and link-local addresses, such as the ports of this machine")
	f.StringSliceVar(&o.Controllers, "controllers", o.Controllers, "control loops to run: '*' for all, 'name' for one, '-name' for all but one, '-*' for none")
}

func (o *Options) addAdmissionFlags(f *pflag.FlagSet) {
	o.Admission.AddFlags(f)
	notReady, unreachable := o.DefaultNotReadyTolerationSeconds, o.DefaultUnreachableTolerationSeconds
	f.Int64Var(notReady, "default-not-ready-toleration-seconds", *notReady, "how long pods stay on nodes that are not ready, unless they say something else")
	f.Int64Var(unreachable, "default-unreachable-toleration-seconds", *unreachable, "how long pods stay on nodes that cannot be reached, unless they say something else")
}

// negated is the flag of an option that says the opposite.
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

// Validate returns all mistakes at once, each with the flag's name.
func (o *Options) Validate() []error {
	var errs []error
	if o.SecurePort < 0 || o.SecurePort > 65535 {
		errs = append(errs, fmt.Errorf("--secure-port %d: must be between 0 and 65535", o.SecurePort))
	}
	if net.ParseIP(o.BindAddress) == nil {
		errs = append(errs, fmt.Errorf("--bind-address %q: must be an IP address", o.BindAddress))
	}
	if (o.ProxyClientCertFile == "") != (o.ProxyClientKeyFile == "") {
		errs = append(errs, fmt.Errorf("--proxy-client-cert-file and --proxy-client-key-file: give both or none"))
	}
	if (o.EtcdCertFile == "") != (o.EtcdKeyFile == "") {
		errs = append(errs, fmt.Errorf("--etcd-certfile and --etcd-keyfile: give both or none"))
	}
	for i, mode := range o.AuthorizationModes {
		if slices.Contains(o.AuthorizationModes[:i], mode) {
			errs = append(errs, fmt.Errorf("--authorization-mode: %s is given twice", mode))
		}
		switch mode {
		case "RBAC", "Node", "AlwaysAllow", "AlwaysDeny":
		default:
			errs = append(errs, fmt.Errorf("--authorization-mode %q: must be one of RBAC, Node, AlwaysAllow, AlwaysDeny", mode))
		}
	}
	if ranges, err := allocation.ParseOptions(o.ServiceClusterIPRange, o.ServiceNodePortRange); err != nil {
		errs = append(errs, fmt.Errorf("--service-node-port-range: %w", err))
	} else if err := ranges.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("--service-cluster-ip-range or --service-node-port-range: %w", err))
	}
	errs = append(errs, o.validateRuntimeConfig()...)
	if err := checkFeatureGates(o.FeatureGates); err != nil {
		errs = append(errs, fmt.Errorf("--feature-gates: %w", err))
	}
	if _, err := controllers.Enabled(o.Controllers); err != nil {
		errs = append(errs, fmt.Errorf("--controllers: %w", err))
	}
	errs = append(errs, o.Admission.Validate()...)
	return append(errs, o.Audit.Validate()...)
}

// validateRuntimeConfig finds switches of API groups and versions that Kubernetes never had. One that is gone is nothing to switch, and so
// is a resource that is unknown: it may have been there in another release.
func (o *Options) validateRuntimeConfig() []error {
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(o.RuntimeConfig)) {
		parts := strings.Split(key, "/")
		switch {
		case len(parts) != 2 && len(parts) != 3:
			errs = append(errs, fmt.Errorf("--runtime-config %q: must look like batch/v1, batch/v1/jobs or api/all", key))
		case parts[0] == "api":
			if !slices.Contains([]string{"all", "ga", "beta", "alpha"}, parts[1]) || len(parts) == 3 {
				errs = append(errs, fmt.Errorf("--runtime-config %q: must be one of api/all, api/ga, api/beta, api/alpha", key))
			}
		case parts[0] == apiextensions.GroupName || parts[0] == apiregistration.GroupName:
			if parts[1] != "v1" && parts[1] != "v1beta1" {
				errs = append(errs, fmt.Errorf("--runtime-config %q: the API group %q has no version %q", key, parts[0], parts[1]))
			}
		case !clientscheme.Scheme.IsGroupRegistered(parts[0]):
			errs = append(errs, fmt.Errorf("--runtime-config %q: there is no API group %q", key, parts[0]))
		case !clientscheme.Scheme.IsVersionRegistered(schema.GroupVersion{Group: parts[0], Version: parts[1]}):
			errs = append(errs, fmt.Errorf("--runtime-config %q: the API group %q has no version %q", key, parts[0], parts[1]))
		}
		if value := o.RuntimeConfig[key]; value != "" {
			if _, err := strconv.ParseBool(value); err != nil {
				errs = append(errs, fmt.Errorf("--runtime-config %q: %q is neither true nor false", key, value))
			}
		}
	}
	return errs
}
