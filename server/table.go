package server

import (
	"fmt"
	"slices"
	"strings"
	"time"

	cliflag "k8s.io/component-base/cli/flag"

	"github.com/kinproc/kinproc/embed"
	"github.com/kinproc/kinproc/server/internal/admission"
	"github.com/kinproc/kinproc/server/internal/allocation"
	"github.com/kinproc/kinproc/server/internal/auth"
	"github.com/kinproc/kinproc/server/internal/controllers"
	"github.com/kinproc/kinproc/server/internal/flags"
	"github.com/kinproc/kinproc/server/internal/simulated"
)

// section is a section of the help.
type section struct {
	name    string
	entries []entry
}

// table returns what there is to say about each option. The options have been completed, or are
// being completed.
func table(o *Options) []section {
	return []section{
		{"serving", slices.Concat(servingOptions(o), tlsOptions(o), limitOptions(o))},
		{"etcd", etcdOptions(o)},
		{"authentication and authorization", slices.Concat(
			clientOptions(o), issuerOptions(o), authorizationOptions(o), proxyOptions(o))},
		{"service accounts", serviceAccountOptions(o)},
		{"API", slices.Concat(apiOptions(o), nodeOptions(o))},
		{"admission", admissionOptions(o)},
		{"auditing", auditOptions(o)},
	}
}

// authorities is what a file of certificate authorities holds.
const authorities = "certificates of authorities"

func servingOptions(o *Options) []entry {
	return []entry{
		{field: &o.DataDir, flag: "data-dir", sandbox: true, noAccess: "each has keys of its own",
			help: "directory of etcd's data, keys and certificates"},
		{field: &o.From, flag: "from", check: o.checkFrom},
		{field: &o.SecurePort, flag: "secure-port", noAccess: "a port",
			help: "port to listen on; 0 picks a free one", check: isPort(o.SecurePort)},
		{field: &o.BindAddress, flag: "bind-address", def: localhost,
			help: "address to listen on", check: isAddress(o.BindAddress)},
		{field: &o.ReadOnly, flag: "read-only",
			noAccess: "refuses more, and never permits anything",
			help: "refuse every request that would change something, and change nothing " +
				"otherwise either"},
		{field: &o.Listener, check: o.needsSockets(o.Listener != nil)},
		{field: &o.AdvertiseAddress, flag: "advertise-address", noAccess: "an address in an object",
			help: "IP address of the endpoint of the service default/kubernetes; if empty, the " +
				"bind address or that of the default route", check: isAddress(o.AdvertiseAddress)},
	}
}

func tlsOptions(o *Options) []entry {
	const identity = "how the server identifies itself"
	return []entry{
		{field: &o.TLSCertFile, flag: "tls-cert-file", noAccess: identity,
			holds: inPEM("a certificate"),
			help: "serving certificate, followed by its authorities; one of the control " +
				"plane's own authority if empty",
			check: goesWith(o.TLSCertFile, o.TLSPrivateKeyFile)},
		{field: &o.TLSPrivateKeyFile, flag: "tls-private-key-file", noAccess: identity,
			holds: inPEM("a private key"), help: "key of that certificate",
			check: goesWith(o.TLSPrivateKeyFile, o.TLSCertFile)},
		{field: &o.CertDir, flag: "cert-dir", noAccess: identity,
			help: "directory with the serving certificate apiserver.crt and its key " +
				"apiserver.key, written if they do not exist; not used with --tls-cert-file"},
		{field: &o.TLSMinVersion, flag: "tls-min-version", noAccess: identity,
			help: "oldest version of TLS to accept, such as VersionTLS13",
			check: failsWith(func() error {
				_, err := cliflag.TLSVersion(o.TLSMinVersion)
				return err
			})},
		{field: &o.TLSCipherSuites, flag: "tls-cipher-suites", noAccess: identity,
			help: "cipher suites to accept up to TLS 1.2; Go's default if empty",
			check: failsWith(func() error {
				_, err := cliflag.TLSCipherSuites(o.TLSCipherSuites)
				return err
			})},
	}
}

func limitOptions(o *Options) []entry {
	const limit = "a limit"
	return []entry{
		{field: &o.MaxRequestsInFlight, flag: "max-requests-inflight", def: 400, noAccess: limit,
			help: "number of concurrent requests, not counting watches, that are added to " +
				"--max-mutating-requests-inflight and divided by API Priority and Fairness; " +
				"without it, the limit of requests that read, or none if 0",
			check: all(inFlight(o.MaxRequestsInFlight), when(!o.DisablePriorityAndFairness &&
				o.MaxRequestsInFlight+o.MaxMutatingRequestsInFlight == 0, "both limits are 0, so "+
				"API Priority and Fairness has nothing to divide: raise one, or switch it off"))},
		{field: &o.MaxMutatingRequestsInFlight, flag: "max-mutating-requests-inflight", def: 200,
			noAccess: limit,
			help: "see --max-requests-inflight; without API Priority and Fairness, the limit of " +
				"requests that write, or none if 0",
			check: inFlight(o.MaxMutatingRequestsInFlight)},
		{field: &o.DisablePriorityAndFairness, flag: "enable-priority-and-fairness", negated: true,
			noAccess: limit,
			help:     "divide concurrent requests among clients with API Priority and Fairness"},
		{field: &o.RequestTimeout, flag: "request-timeout", def: time.Minute, noAccess: limit,
			help:  "how long a request may take that is not long-running",
			check: lasts(o.RequestTimeout, 1)},
		{field: &o.MinRequestTimeout, flag: "min-request-timeout", def: 1800, noAccess: limit,
			help: "shortest time, in seconds, after which a watch ends that asks for no timeout; " +
				"the longest is twice as long", check: lastsSeconds(o.MinRequestTimeout)},
		{field: &o.DisableProfiling, flag: "profiling", negated: true,
			noAccess: "profiles take a right to /debug, for which TestReach always asks",
			help:     "serve profiles at /debug/pprof"},
	}
}

func etcdOptions(o *Options) []entry {
	const etcd, stored = "etcd itself decides who may talk to it", "how objects are stored"
	return []entry{
		{field: &o.EtcdServers, flag: "etcd-servers", noAccess: etcd,
			help:  "URLs of an external etcd cluster, used instead of the embedded one",
			check: o.needsSockets(len(o.EtcdServers) > 0)},
		{field: &o.EtcdCAFile, flag: "etcd-cafile", noAccess: etcd, holds: inPEM(authorities),
			help: "certificate authorities of the external etcd"},
		{field: &o.EtcdCertFile, flag: "etcd-certfile", noAccess: etcd,
			holds: inPEM("a certificate"), help: "client certificate for the external etcd",
			check: goesWith(o.EtcdCertFile, o.EtcdKeyFile)},
		{field: &o.EtcdKeyFile, flag: "etcd-keyfile", noAccess: etcd, holds: inPEM("a private key"),
			help:  "key of the client certificate for the external etcd",
			check: goesWith(o.EtcdKeyFile, o.EtcdCertFile)},
		{field: &o.PKIDir, flag: "pki-dir", sandbox: true,
			noAccess: "its keys are used like those of --data-dir",
			help: "directory of the certificate authorities and the service account key, which " +
				"control planes that share an etcd must share too"},
		{field: &o.ListenEtcd, flag: "listen-etcd",
			help: "loopback address and port at which the embedded etcd serves other programs, " +
				"such as 127.0.0.1:2379; they need the certificates in pki/etcd",
			check: all(o.needsSockets(o.ListenEtcd != ""), o.checkListenEtcd)},
		{field: &o.EtcdPrefix, flag: "etcd-prefix", noAccess: stored,
			help: "prefix of all keys in etcd; /registry if empty"},
		{field: &o.EventTTL, flag: "event-ttl", def: time.Hour, noAccess: "a limit",
			help:  "how long events are kept; for ever if 0",
			check: all(lasts(o.EventTTL, 0), atLeastASecond(o.EventTTL))},
		{field: &o.HistoryKept, flag: "history-kept", def: time.Hour,
			noAccess: "how long versions are kept, not who may see them",
			help: "how long old versions of objects are kept at least, but at most 100,000 of " +
				"them, and 256 MiB or a quarter of --quota-backend-bytes; see kinproc history",
			check: lasts(o.HistoryKept, 1)},
		{field: &o.QuotaBackendBytes, flag: "quota-backend-bytes",
			def:      int64(embed.DefaultQuotaBytes),
			noAccess: "a limit",
			help: "size that the database of the embedded etcd has at most; when objects fill " +
				"it, only reads and deletions go on",
			check: o.checkQuota},
		{field: &o.EncryptionProviderConfig, flag: "encryption-provider-config", noAccess: stored,
			holds: contents{what: "an EncryptionConfiguration"},
			help: "file with an EncryptionConfiguration: which resources are encrypted in etcd, " +
				"and how"},
		{field: &o.EncryptionProviderConfigAutomaticReload,
			flag: "encryption-provider-config-automatic-reload", noAccess: stored,
			help:  "let changes of that file take effect at once",
			check: o.checkReload},
	}
}

func clientOptions(o *Options) []entry {
	return []entry{
		{field: &o.ClientCAFile, flag: "client-ca-file", holds: inPEM(authorities),
			help: "additional certificate authorities whose client certificates are accepted"},
		{field: &o.TokenAuthFile, flag: "token-auth-file",
			holds: contents{what: `lines with token,user,uid,"group1,group2"`, empty: true},
			help:  `CSV file of static bearer tokens: token,user,uid,"group1,group2"`},
		{field: &o.EnableBootstrapTokenAuth, flag: "enable-bootstrap-token-auth",
			help: "accept tokens from secrets of the type bootstrap.kubernetes.io/token in " +
				"kube-system"},
		{field: &o.DisableAnonymous, flag: "anonymous-auth", negated: true,
			help: "treat requests without credentials as coming from system:anonymous; never " +
				"with AlwaysAllow"},
	}
}

func issuerOptions(o *Options) []entry {
	const issuer, webhook = "an issuer decides", "a webhook decides"
	i, w := &o.OIDC, &o.TokenWebhook
	return []entry{
		{field: &o.AuthenticationConfigFile, flag: "authentication-config",
			holds: contents{what: "an AuthenticationConfiguration"},
			help: "file with an AuthenticationConfiguration: the issuers whose tokens are " +
				"accepted, and what anonymous users may reach; changes take effect at once",
			check: o.checkAuthenticationConfig},
		{field: i, flag: "oidc-issuer-url"},
		{field: &i.IssuerURL, flag: "oidc-issuer-url", noAccess: issuer,
			help: "URL of an OpenID Connect provider whose tokens are accepted",
			check: when(i.IssuerURL == "" && (i.ClientID != "" || i.CAFile != "" ||
				i.UsernamePrefix != "" || i.GroupsClaim != "" || i.GroupsPrefix != "" ||
				len(i.RequiredClaims) > 0), "it must be set for the other options of OIDC")},
		{field: &i.ClientID, flag: "oidc-client-id", noAccess: issuer,
			help:  "audience of those tokens",
			check: when(i.IssuerURL != "" && i.ClientID == "", "it must be set with an issuer")},
		{field: &i.CAFile, flag: "oidc-ca-file", noAccess: issuer, holds: inPEM(authorities),
			help: "certificate authorities of the provider; those of the machine if empty"},
		{field: &i.UsernameClaim, flag: "oidc-username-claim", def: "sub", noAccess: issuer,
			help: "claim with the name of the user"},
		{field: &i.UsernamePrefix, flag: "oidc-username-prefix", noAccess: issuer,
			help: "prefix of user names; - for none"},
		{field: &i.GroupsClaim, flag: "oidc-groups-claim", noAccess: issuer,
			help: "claim with the groups of the user"},
		{field: &i.GroupsPrefix, flag: "oidc-groups-prefix", noAccess: issuer,
			help: "prefix of groups"},
		{field: &i.SigningAlgs, flag: "oidc-signing-algs", def: []string{"RS256"}, noAccess: issuer,
			help: "algorithms by which tokens may be signed"},
		{field: &i.RequiredClaims, flag: "oidc-required-claim", noAccess: issuer,
			help: "claim that tokens must have, and its value: name=value; may be repeated"},
		{field: &w.ConfigFile, flag: "authentication-token-webhook-config-file", noAccess: webhook,
			holds: contents{what: "a kubeconfig"},
			help:  "kubeconfig of a webhook that is asked who the bearer of a token is"},
		{field: &w.Version, flag: "authentication-token-webhook-version", def: "v1beta1",
			noAccess: webhook, help: "version of the TokenReviews for that webhook: v1 or v1beta1",
			check: isReview(w.Version)},
		{field: &w.CacheTTL, flag: "authentication-token-webhook-cache-ttl", def: 2 * time.Minute,
			noAccess: webhook, help: "how long its answers are kept", check: lasts(w.CacheTTL, 0)},
	}
}

func authorizationOptions(o *Options) []entry {
	const webhook = "a webhook decides"
	w := &o.AuthorizationWebhook
	return []entry{
		{field: &o.AuthorizationModes, flag: "authorization-mode",
			help: "authorizers to ask, in order: " + strings.Join(auth.Modes(), ", ") +
				"; RBAC if empty",
			check: o.checkModes},
		{field: &o.AuthorizationConfigFile, flag: "authorization-config",
			holds: contents{what: "an AuthorizationConfiguration"},
			help: "file with an AuthorizationConfiguration, instead of the other authorization " +
				"flags; changes take effect at once",
			check: when(o.AuthorizationConfigFile != "" && (len(o.AuthorizationModes) > 0 ||
				w.ConfigFile != ""), "it replaces the modes and the webhook, so they cannot be "+
				"given too")},
		{field: &w.ConfigFile, flag: "authorization-webhook-config-file", noAccess: webhook,
			holds: contents{what: "a kubeconfig"},
			help:  "kubeconfig of the webhook of the authorization mode Webhook",
			check: o.checkAuthorizationWebhook},
		{field: &w.Version, flag: "authorization-webhook-version", def: "v1beta1",
			noAccess: webhook,
			help:     "version of the SubjectAccessReviews for that webhook: v1 or v1beta1",
			check:    isReview(w.Version)},
		{field: &w.AuthorizedTTL, flag: "authorization-webhook-cache-authorized-ttl",
			def: 5 * time.Minute, noAccess: webhook,
			help:  "how long its answers that allow are kept",
			check: lasts(w.AuthorizedTTL, 0)},
		{field: &w.UnauthorizedTTL, flag: "authorization-webhook-cache-unauthorized-ttl",
			def: 30 * time.Second, noAccess: webhook, help: "how long its other answers are kept",
			check: lasts(w.UnauthorizedTTL, 0)},
	}
}

func proxyOptions(o *Options) []entry {
	const header = "names of headers"
	r := &o.RequestHeader
	return []entry{
		{field: &r.ClientCAFile, flag: "requestheader-client-ca-file", holds: inPEM(authorities),
			help: "certificate authorities of proxies that may name users in headers"},
		{field: &r.AllowedNames, flag: "requestheader-allowed-names",
			help: "common names of such proxies; any if empty, which requires authorities that " +
				"sign no client certificates"},
		{field: &r.UsernameHeaders, flag: "requestheader-username-headers",
			def: []string{"X-Remote-User"}, noAccess: header, help: "headers with the user's name"},
		{field: &r.UIDHeaders, flag: "requestheader-uid-headers", def: []string{"X-Remote-Uid"},
			noAccess: header, help: "headers with the user's UID"},
		{field: &r.GroupHeaders, flag: "requestheader-group-headers",
			def: []string{"X-Remote-Group"}, noAccess: header,
			help: "headers with the user's groups"},
		{field: &r.ExtraHeaderPrefixes, flag: "requestheader-extra-headers-prefix",
			def: []string{"X-Remote-Extra-"}, noAccess: header,
			help: "prefixes of the headers with the user's extra attributes"},
		{field: &o.ProxyClientCertFile, flag: "proxy-client-cert-file",
			holds: inPEM("a certificate"),
			help:  "certificate that identifies the aggregator to extension API servers",
			check: goesWith(o.ProxyClientCertFile, o.ProxyClientKeyFile)},
		{field: &o.ProxyClientKeyFile, flag: "proxy-client-key-file", holds: inPEM("a private key"),
			help:  "key of that certificate",
			check: goesWith(o.ProxyClientKeyFile, o.ProxyClientCertFile)},
	}
}

func serviceAccountOptions(o *Options) []entry {
	return []entry{
		{field: &o.APIAudiences, flag: "api-audiences",
			help: "audiences of tokens for this server; the service account issuer if empty"},
		{field: &o.ServiceAccountIssuer, flag: "service-account-issuer",
			def:  []string{"https://kubernetes.default.svc"},
			help: "issuer of the tokens that are signed here, followed by other accepted issuers"},
		{field: &o.ServiceAccountSigningKeyFile, flag: "service-account-signing-key-file",
			holds: inPEM("a private key"),
			help:  "key that signs tokens; a key in the data directory if empty"},
		{field: &o.ServiceAccountKeyFiles, flag: "service-account-key-file", holds: inPEM("keys"),
			help: "additional keys that verify tokens"},
		{field: &o.ServiceAccountMaxTokenExpiration, flag: "service-account-max-token-expiration",
			noAccess: "a limit", help: "maximum lifetime of a token; unlimited if 0",
			check: isLifetime(o.ServiceAccountMaxTokenExpiration)},
		{field: &o.ServiceAccountJWKSURI, flag: "service-account-jwks-uri",
			help: "URI of the key set in the OpenID configuration"},
	}
}

func apiOptions(o *Options) []entry {
	versions := strings.Join(EmulatedVersions(), ", ")
	return []entry{
		{field: &o.RuntimeConfig, flag: "runtime-config", def: cliflag.ConfigurationMap{},
			help: "group versions and resources to enable or disable, such as api/beta=true or " +
				"batch/v1/jobs=false",
			check: o.checkRuntimeConfig},
		{field: &o.EmulatedVersion, flag: "emulated-version", def: EmulatedVersions()[emulated],
			help: "minor version of Kubernetes to behave as: " + versions,
			check: when(!slices.Contains(EmulatedVersions(), o.EmulatedVersion),
				"%q is not one of %s", o.EmulatedVersion, versions)},
		{field: &o.FeatureGates, flag: "feature-gates", def: map[string]bool{},
			help:  "features to enable or disable, such as A=true,B=false",
			check: failsWith(o.checkGates)},
		{field: &o.ServiceClusterIPRange, flag: "service-cluster-ip-range",
			def: allocation.DefaultServiceCIDR, noAccess: "addresses",
			help:  "range of cluster IPs: a CIDR, or one of each IP family",
			check: areRanges(o.ServiceClusterIPRange, "")},
		{field: &o.ServiceNodePortRange, flag: "service-node-port-range",
			def: fmt.Sprintf("%d-%d", allocation.DefaultFirstNodePort,
				allocation.DefaultLastNodePort),
			noAccess: "ports", help: "range of node ports",
			check: areRanges("", o.ServiceNodePortRange)},
		{field: &o.DisallowPrivileged, flag: "allow-privileged", negated: true, noAccess: "pods",
			help: "allow privileged containers"},
		{field: &o.EnableAggregatorRouting, flag: "enable-aggregator-routing",
			help: "send requests for extension API servers and webhooks to endpoints, never to " +
				"cluster IPs"},
		{field: &o.ProxyAllowLocalAddresses, flag: "proxy-allow-local-addresses",
			noAccess: "where the proxies connect to, not who may use them",
			help: "let the proxies to services, pods and nodes reach loopback and link-local " +
				"addresses, such as the ports of this machine"},
		{field: &o.Controllers, flag: "controllers", sandbox: true,
			describe: flags.DescribeControllers,
			check: failsWith(func() error {
				_, err := controllers.Selected(o.Controllers)
				return err
			})},
	}
}

func nodeOptions(o *Options) []entry {
	const nodes = "nodes and what they have"
	return []entry{
		{field: &o.SimulatedNodes, flag: "simulate-nodes", sandbox: true, noAccess: nodes,
			help: "number of nodes to simulate; their pods start, run and end, though no " +
				"container runs",
			check: failsWith(o.checkNodes)},
		{field: &o.SimulatedNodeKinds, flag: "simulate-nodes", check: failsWith(o.checkNodeKinds)},
		{field: &o.SimulatedNodeCapacity, flag: "simulated-node-capacity", sandbox: true,
			noAccess: nodes,
			help: "capacity of each simulated node, such as " +
				"cpu=8,memory=32Gi,example.com/gpu=4",
			check: failsWith(func() error {
				return simulated.CheckCapacity(o.SimulatedNodeCapacity)
			})},
		{field: &o.SimulateNodesMatching, flag: "simulate-nodes-matching", sandbox: true,
			noAccess: nodes,
			help: "selector of labels, such as type=kwok: nodes that others make and that it " +
				"matches are simulated too; see docs/nodes.md",
			check: failsWith(func() error {
				_, err := simulated.ParseMarks(o.SimulateNodesMatching)
				return err
			})},
		{field: &o.SimulatedMetrics, flag: "simulated-metrics", sandbox: true, noAccess: nodes,
			help: "serve metrics.k8s.io and the APIs of custom and external metrics for " +
				"simulated pods; see docs/nodes.md"},
		{field: &o.PodBehaviors, flag: "pod-behaviors", sandbox: true,
			noAccess: "a custom resource, which RBAC guards as any other",
			help: "install the custom resource PodBehavior, which says what many simulated pods " +
				"do"},
		{field: &o.SimulatedLogDir, flag: "simulated-log-dir", sandbox: true, noAccess: nodes,
			help: "directory whose files simulated pods may log; whoever may create pods can " +
				"read them",
			check: isDirectory(o.SimulatedLogDir)},
		{field: &o.StandInPorts, flag: "stand-in-ports", sandbox: true,
			noAccess: "where pods connect to, not who may use them",
			help: "loopback ports, such as 8080,9000-9010, at which processes stand in for " +
				"simulated pods; whoever may create pods can reach them",
			check: failsWith(func() error {
				_, err := simulated.ParsePorts(o.StandInPorts)
				return err
			})},
		{field: &o.LoadBalancerRange, flag: "load-balancer-range", sandbox: true,
			noAccess: "addresses",
			help: "addresses of Services of type LoadBalancer, and of Ingresses and Gateways of " +
				"the class kinproc; none if empty",
			check: failsWith(o.checkLoadBalancers)},
	}
}

func admissionOptions(o *Options) []entry {
	const tolerations = "tolerations of pods"
	return []entry{
		{field: &o.Admission.ConfigFile,
			flag:  "admission-control-config-file",
			holds: contents{what: "an AdmissionConfiguration"}},
		{field: &o.DefaultNotReadyTolerationSeconds, flag: "default-not-ready-toleration-seconds",
			def: new(int64(admission.DefaultTolerationSeconds)), noAccess: tolerations,
			help: "seconds that pods stay on nodes that are not ready, unless a pod specifies " +
				"otherwise"},
		{field: &o.DefaultUnreachableTolerationSeconds,
			flag: "default-unreachable-toleration-seconds",
			def:  new(int64(admission.DefaultTolerationSeconds)), noAccess: tolerations,
			help: "seconds that pods stay on nodes that cannot be reached, unless a pod " +
				"specifies otherwise"},
	}
}

func auditOptions(o *Options) []entry {
	return []entry{
		{field: &o.Audit.PolicyFile, flag: "audit-policy-file",
			holds: contents{what: "an audit Policy"}},
		{field: &o.Audit.WebhookOptions.ConfigFile,
			flag: "audit-webhook-config-file", holds: contents{what: "a kubeconfig"}},
		{field: &o.Audit.LogOptions.Path, flag: "audit-log-path"},
	}
}
