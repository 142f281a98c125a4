package server

import (
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration"

	"github.com/kinproc/kinproc/embed"
	"github.com/kinproc/kinproc/server/internal/allocation"
	"github.com/kinproc/kinproc/server/internal/auth"
	"github.com/kinproc/kinproc/server/internal/controllers"
	"github.com/kinproc/kinproc/server/internal/controllers/network/loadbalancers"
	"github.com/kinproc/kinproc/server/internal/option"
	"github.com/kinproc/kinproc/server/internal/simulated"
)

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
	for _, other := range []struct {
		field, flag string
		set         bool
	}{
		{"Listener", "", o.Listener != nil},
		{"ListenEtcd", "listen-etcd", o.ListenEtcd != ""},
		{"EtcdServers", "etcd-servers", len(o.EtcdServers) > 0},
	} {
		if o.Network != nil && other.set {
			wrong(other.field, other.flag, "it needs sockets, and Network is set")
		}
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
	if versions := EmulatedVersions(); !slices.Contains(versions, o.EmulatedVersion) {
		wrong("EmulatedVersion", "emulated-version", "%q is not one of %s", o.EmulatedVersion,
			strings.Join(versions, ", "))
	} else if err := o.checkGates(); err != nil {
		wrong("FeatureGates", "feature-gates", "%w", err)
	}
	if _, err := controllers.Selected(o.Controllers); err != nil {
		wrong("Controllers", "controllers", "%w", err)
	}
	if err := checkSimulatedNodes(o); err != nil {
		wrong("SimulatedNodes", "simulate-nodes", "%w", err)
	}
	if err := o.checkNodeKinds(); err != nil {
		wrong("SimulatedNodeKinds", "simulate-nodes", "%w", err)
	}
	if err := simulated.CheckCapacity(o.SimulatedNodeCapacity); err != nil {
		wrong("SimulatedNodeCapacity", "simulated-node-capacity", "%w", err)
	}
	if _, err := simulated.ParsePorts(o.StandInPorts); err != nil {
		wrong("StandInPorts", "stand-in-ports", "%w", err)
	}
	if info, err := os.Stat(o.SimulatedLogDir); o.SimulatedLogDir != "" &&
		(err != nil || !info.IsDir()) {
		wrong("SimulatedLogDir", "simulated-log-dir", "%q is not a directory that can be read",
			o.SimulatedLogDir)
	}
	if err := o.checkLoadBalancers(); err != nil {
		wrong("LoadBalancerRange", "load-balancer-range", "%w", err)
	}
	return slices.Concat(errs,
		o.libraryErrors("Admission", libraryAdmission(o).Validate()),
		o.libraryErrors("Audit", libraryAudit(o).Validate()))
}

// names says what options are called in messages: by their flags if they are bound to flags,
// otherwise by their fields.
func (o *Options) names() option.Names { return option.Names{Flags: o.flags} }

// name returns the name of an option in messages.
func (o *Options) name(field, flag string) string { return o.names().Of(field, flag) }

// wrong returns an error that names an option.
func (o *Options) wrong(field, flag, format string, args ...any) error {
	return o.names().Wrong(field, flag, format, args...)
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

// validateServing validates the options of the serving certificate.
func (o *Options) validateServing() []error {
	var errs []error
	wrong := func(field, flag, format string, args ...any) {
		errs = append(errs, o.wrong(field, flag, format, args...))
	}
	const together = "a certificate and its key go together: set both or neither"
	if o.TLSCertFile == "" && o.TLSPrivateKeyFile != "" {
		wrong("TLSCertFile", "tls-cert-file", together)
	}
	if o.TLSCertFile != "" && o.TLSPrivateKeyFile == "" {
		wrong("TLSPrivateKeyFile", "tls-private-key-file", together)
	}
	if _, err := cliflag.TLSVersion(o.TLSMinVersion); err != nil {
		wrong("TLSMinVersion", "tls-min-version", "%w", err)
	}
	if _, err := cliflag.TLSCipherSuites(o.TLSCipherSuites); err != nil {
		wrong("TLSCipherSuites", "tls-cipher-suites", "%w", err)
	}
	if o.AdvertiseAddress != "" && net.ParseIP(o.AdvertiseAddress) == nil {
		wrong("AdvertiseAddress", "advertise-address", "%q is not an IP address",
			o.AdvertiseAddress)
	}
	for _, limit := range []struct {
		field, flag string
		value       int
	}{
		{"MaxRequestsInFlight", "max-requests-inflight", o.MaxRequestsInFlight},
		{"MaxMutatingRequestsInFlight", "max-mutating-requests-inflight", o.MaxMutatingRequestsInFlight},
	} {
		if limit.value < 0 {
			wrong(limit.field, limit.flag, "%d is negative", limit.value)
		} else if limit.value > mostInFlight {
			wrong(limit.field, limit.flag, "%d is more than %d", limit.value, mostInFlight)
		}
	}
	if !o.DisablePriorityAndFairness && o.MaxRequestsInFlight+o.MaxMutatingRequestsInFlight == 0 {
		wrong("MaxRequestsInFlight", "max-requests-inflight",
			"both limits are 0, so API Priority and Fairness has nothing to divide: raise one, "+
				"or switch it off")
	}
	return errs
}

const (
	// mostInFlight bounds the numbers of concurrent requests, whose sum the libraries calculate with.
	mostInFlight = 1_000_000_000
	// longest bounds durations. The libraries add to them, and etcd has a limit of its own.
	longest = 10 * 365 * 24 * time.Hour
	// The bounds of the lifetime of tokens are those of kube-apiserver.
	shortestToken, longestToken = time.Hour, time.Duration(1<<32) * time.Second
)

// validateTimes validates how long requests and events may last.
func (o *Options) validateTimes() (errs []error) {
	wrong := func(field, flag, format string, args ...any) {
		errs = append(errs, o.wrong(field, flag, format, args...))
	}
	for _, d := range []struct {
		field, flag string
		value, zero time.Duration
	}{
		{"EventTTL", "event-ttl", o.EventTTL, 0},
		{"HistoryKept", "history-kept", o.HistoryKept, 1},
		{"RequestTimeout", "request-timeout", o.RequestTimeout, 1},
		{"TokenWebhook.CacheTTL", "authentication-token-webhook-cache-ttl", o.TokenWebhook.CacheTTL, 0},
		{"AuthorizationWebhook.AuthorizedTTL", "authorization-webhook-cache-authorized-ttl",
			o.AuthorizationWebhook.AuthorizedTTL, 0},
		{"AuthorizationWebhook.UnauthorizedTTL", "authorization-webhook-cache-unauthorized-ttl",
			o.AuthorizationWebhook.UnauthorizedTTL, 0},
	} {
		switch {
		case d.value < 0 && d.zero == 0:
			wrong(d.field, d.flag, "%s is negative", d.value)
		case d.value < d.zero:
			wrong(d.field, d.flag, "%s is not positive", d.value)
		case d.value > longest:
			wrong(d.field, d.flag, "%s is more than ten years, %s", d.value, longest)
		}
	}
	switch quota := o.QuotaBackendBytes; {
	case quota < embed.MinQuotaBytes || quota > embed.MaxQuotaBytes:
		wrong("QuotaBackendBytes", "quota-backend-bytes", "%d is not from %d (16 MiB) to %d (1 TiB)",
			quota, embed.MinQuotaBytes, embed.MaxQuotaBytes)
	case o.sharesEtcd() && quota != embed.DefaultQuotaBytes:
		wrong("QuotaBackendBytes", "quota-backend-bytes", "an external etcd has a quota of its own")
	}
	if 0 < o.EventTTL && o.EventTTL < time.Second {
		wrong("EventTTL", "event-ttl", "%s is less than a second", o.EventTTL)
	}
	if n := o.MinRequestTimeout; n < 0 {
		wrong("MinRequestTimeout", "min-request-timeout", "%d is negative", n)
	} else if n > int(longest/time.Second) {
		wrong("MinRequestTimeout", "min-request-timeout", "%d is more than ten years, %d seconds", n,
			int(longest/time.Second))
	}
	if d := o.ServiceAccountMaxTokenExpiration; d != 0 && (d < shortestToken || d > longestToken) {
		wrong("ServiceAccountMaxTokenExpiration", "service-account-max-token-expiration",
			"%s is neither 0 nor between %s and %s", d, shortestToken, longestToken)
	}
	return errs
}

// validateListenEtcd validates Options.ListenEtcd, which is set.
func (o *Options) validateListenEtcd() error {
	wrong := func(format string, args ...any) error {
		return o.wrong("ListenEtcd", "listen-etcd", format, args...)
	}
	switch host, port, err := net.SplitHostPort(o.ListenEtcd); {
	case err != nil:
		return wrong("%q is not an address with a port, such as 127.0.0.1:2379", o.ListenEtcd)
	case !net.ParseIP(host).IsLoopback():
		return wrong("%q is not a loopback address, such as 127.0.0.1 or ::1; who reaches etcd may "+
			"change everything", host)
	case !isPort(port):
		return wrong("%q is not a port", port)
	case len(o.EtcdServers) > 0:
		return wrong("%s is set; only the embedded etcd can listen",
			o.name("EtcdServers", "etcd-servers"))
	case o.ReadOnly:
		return wrong("%s is set, but clients of etcd could write", o.name("ReadOnly", "read-only"))
	}
	return nil
}

func isPort(port string) bool {
	n, err := strconv.Atoi(port)
	return err == nil && n >= 0 && n <= 65535
}

func (o *Options) validateEncryption() []error {
	var errs []error
	if o.EncryptionProviderConfig == "" && o.EncryptionProviderConfigAutomaticReload {
		errs = append(errs, o.wrong("EncryptionProviderConfigAutomaticReload",
			"encryption-provider-config-automatic-reload", "there is no %s",
			o.name("EncryptionProviderConfig", "encryption-provider-config")))
	}
	if o.EncryptionProviderConfig != "" && o.From != nil {
		errs = append(errs, o.wrong("From", "from", "a snapshot cannot be encrypted; leave out %s",
			o.name("EncryptionProviderConfig", "encryption-provider-config")))
	}
	return errs
}

// validateAuthentication validates what can be known of the options without reading files.
func (o *Options) validateAuthentication() []error {
	var errs []error
	wrong := func(field, flag, format string, args ...any) {
		errs = append(errs, o.wrong(field, flag, format, args...))
	}
	i := o.OIDC
	given := i.CAFile != "" || i.UsernamePrefix != "" || i.GroupsClaim != "" || i.GroupsPrefix != "" ||
		len(i.RequiredClaims) > 0
	switch {
	case i.IssuerURL == "" && (given || i.ClientID != ""):
		wrong("OIDC.IssuerURL", "oidc-issuer-url", "it must be set for the other options of OIDC")
	case i.IssuerURL != "" && i.ClientID == "":
		wrong("OIDC.ClientID", "oidc-client-id", "it must be set with an issuer")
	case i.IssuerURL != "" && o.AuthenticationConfigFile != "":
		wrong("AuthenticationConfigFile", "authentication-config",
			"it cannot be combined with %s: put the issuer into the file",
			o.name("OIDC.IssuerURL", "oidc-issuer-url"))
	}
	if v := o.TokenWebhook.Version; !slices.Contains([]string{"v1", "v1beta1"}, v) {
		wrong("TokenWebhook.Version", "authentication-token-webhook-version",
			"%q is neither v1 nor v1beta1", v)
	}
	return errs
}

// validateAuthorization validates what can be known of the options without reading files.
func (o *Options) validateAuthorization() []error {
	var errs []error
	wrong := func(field, flag, format string, args ...any) {
		errs = append(errs, o.wrong(field, flag, format, args...))
	}
	for i, mode := range o.AuthorizationModes {
		if slices.Contains(o.AuthorizationModes[:i], mode) {
			wrong("AuthorizationModes", "authorization-mode", "%s is given twice", mode)
		}
		if !slices.Contains(auth.Modes(), mode) {
			wrong("AuthorizationModes", "authorization-mode", "%q is not one of %s", mode,
				strings.Join(auth.Modes(), ", "))
		}
	}
	w := o.AuthorizationWebhook
	asked := slices.Contains(o.AuthorizationModes, auth.ModeWebhook)
	switch {
	case o.AuthorizationConfigFile != "" && (len(o.AuthorizationModes) > 0 || w.ConfigFile != ""):
		wrong("AuthorizationConfigFile", "authorization-config",
			"it replaces the modes and the webhook, so they cannot be given too")
	case asked && w.ConfigFile == "":
		wrong("AuthorizationWebhook.ConfigFile", "authorization-webhook-config-file",
			"it must be set for the mode Webhook")
	case !asked && w.ConfigFile != "":
		wrong("AuthorizationWebhook.ConfigFile", "authorization-webhook-config-file",
			"nothing asks the webhook without the mode Webhook")
	}
	if !slices.Contains([]string{"v1", "v1beta1"}, w.Version) {
		wrong("AuthorizationWebhook.Version", "authorization-webhook-version",
			"%q is neither v1 nor v1beta1", w.Version)
	}
	return errs
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

// checkLoadBalancers checks the range of load balancers, which must not be that of services.
func (o *Options) checkLoadBalancers() error {
	addresses, err := loadbalancers.ParseRange(o.LoadBalancerRange)
	if err != nil {
		return err
	}
	services, err := allocation.ParseOptions(o.ServiceClusterIPRange, "")
	if err != nil {
		return nil // which is said elsewhere
	}
	if len(services.CIDRs) == 0 {
		services.CIDRs = []string{allocation.DefaultServiceCIDR}
	}
	for _, cidr := range services.CIDRs {
		if addresses.Overlaps(cidr) {
			return fmt.Errorf("%q overlaps the range of cluster IPs, %s: use another range, or change %s",
				o.LoadBalancerRange, cidr, o.name("ServiceClusterIPRange", "service-cluster-ip-range"))
		}
	}
	return nil
}

// checkSimulatedNodes checks the options of simulated nodes.
func checkSimulatedNodes(o *Options) error {
	if o.SimulatedNodes < 0 {
		return fmt.Errorf("%d is negative", o.SimulatedNodes)
	}
	return simulated.Check(o.SimulatedNodes, o.SimulatedNodeCapacity, nil)
}

// checkNodeKinds checks the kinds of nodes, and whether there is room for all nodes together.
func (o *Options) checkNodeKinds() error {
	if len(o.SimulatedNodeKinds) == 0 {
		return nil
	}
	return simulated.Check(o.SimulatedNodes, o.SimulatedNodeCapacity, o.nodeKinds())
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
