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
	"github.com/kinproc/kinproc/server/internal/controllers/network/loadbalancers"
	"github.com/kinproc/kinproc/server/internal/simulated"
)

// report reports something that is wrong with an option.
type report func(format string, args ...any)

// check finds what is wrong with an option.
type check func(wrong report)

func all(checks ...check) check {
	return func(wrong report) {
		for _, c := range checks {
			c(wrong)
		}
	}
}

// when reports a mistake if there is one.
func when(mistaken bool, format string, args ...any) check {
	return func(wrong report) {
		if mistaken {
			wrong(format, args...)
		}
	}
}

func failsWith(f func() error) check {
	return func(wrong report) {
		if err := f(); err != nil {
			wrong("%w", err)
		}
	}
}

func isAddress(ip string) check {
	return when(ip != "" && net.ParseIP(ip) == nil, "%q is not an IP address", ip)
}

func isPort(n int) check {
	return when(n < 0 || n > 65535, "%d is not between 0 and 65535", n)
}

func goesWith(file, other string) check {
	return when(file == "" && other != "",
		"a certificate and its key go together: set both or neither")
}

func isReview(version string) check {
	return when(version != "v1" && version != "v1beta1", "%q is neither v1 nor v1beta1", version)
}

func isDirectory(path string) check {
	return func(wrong report) {
		if info, err := os.Stat(path); path != "" && (err != nil || !info.IsDir()) {
			wrong("%q is not a directory that can be read", path)
		}
	}
}

const (
	// mostInFlight bounds the numbers of concurrent requests, whose sum the libraries calculate
	// with.
	mostInFlight = 1_000_000_000
	// longest bounds durations. The libraries add to them, and etcd has a limit of its own.
	longest = 10 * 365 * 24 * time.Hour
	// The bounds of the lifetime of tokens are those of kube-apiserver.
	shortestToken, longestToken = time.Hour, time.Duration(1<<32) * time.Second
)

func inFlight(n int) check {
	return all(when(n < 0, "%d is negative", n),
		when(n > mostInFlight, "%d is more than %d", n, mostInFlight))
}

// lasts checks a duration, which may be 0 if least is.
func lasts(d, least time.Duration) check {
	return all(
		when(d < 0 && least == 0, "%s is negative", d),
		when(d < least && least > 0, "%s is not positive", d),
		when(d > longest, "%s is more than ten years, %s", d, longest))
}

func atLeastASecond(d time.Duration) check {
	return when(0 < d && d < time.Second, "%s is less than a second", d)
}

func lastsSeconds(n int) check {
	const most = int(longest / time.Second)
	return all(when(n < 0, "%d is negative", n),
		when(n > most, "%d is more than ten years, %d seconds", n, most))
}

func isLifetime(d time.Duration) check {
	return when(d != 0 && (d < shortestToken || d > longestToken),
		"%s is neither 0 nor between %s and %s", d, shortestToken, longestToken)
}

// areRanges checks the ranges of cluster IPs and node ports. An empty range stands for the default.
func areRanges(clusterIPs, nodePorts string) check {
	return failsWith(func() error {
		ranges, err := allocation.ParseOptions(clusterIPs, nodePorts)
		if err != nil {
			return err
		}
		return ranges.Validate()
	})
}

func (o *Options) needsSockets(set bool) check {
	return when(set && o.Network != nil, "it needs sockets, and Network is set")
}

func (o *Options) checkFrom(wrong report) {
	if o.From != nil && len(o.EtcdServers) > 0 {
		wrong("%s is set; only the embedded etcd can begin with a snapshot", o.name(&o.EtcdServers))
	}
	if o.From != nil && o.EncryptionProviderConfig != "" {
		wrong("a snapshot cannot be encrypted; leave out %s", o.name(&o.EncryptionProviderConfig))
	}
}

func (o *Options) checkListenEtcd(wrong report) {
	if o.ListenEtcd == "" {
		return
	}
	host, text, err := net.SplitHostPort(o.ListenEtcd)
	port, notNumber := strconv.Atoi(text)
	switch {
	case err != nil:
		wrong("%q is not an address with a port, such as 127.0.0.1:2379", o.ListenEtcd)
	case !net.ParseIP(host).IsLoopback():
		wrong("%q is not a loopback address, such as 127.0.0.1 or ::1; who reaches etcd may "+
			"change everything", host)
	case notNumber != nil || port < 0 || port > 65535:
		wrong("%q is not a port", text)
	case len(o.EtcdServers) > 0:
		wrong("%s is set; only the embedded etcd can listen", o.name(&o.EtcdServers))
	case o.ReadOnly:
		wrong("%s is set, but clients of etcd could write", o.name(&o.ReadOnly))
	}
}

func (o *Options) checkQuota(wrong report) {
	switch quota := o.QuotaBackendBytes; {
	case quota < embed.MinQuotaBytes || quota > embed.MaxQuotaBytes:
		wrong("%d is not from %d (16 MiB) to %d (1 TiB)", quota, embed.MinQuotaBytes,
			embed.MaxQuotaBytes)
	case o.sharesEtcd() && quota != embed.DefaultQuotaBytes:
		wrong("an external etcd has a quota of its own")
	}
}

func (o *Options) checkReload(wrong report) {
	if o.EncryptionProviderConfig == "" && o.EncryptionProviderConfigAutomaticReload {
		wrong("there is no %s", o.name(&o.EncryptionProviderConfig))
	}
}

func (o *Options) checkAuthenticationConfig(wrong report) {
	if o.OIDC.IssuerURL != "" && o.AuthenticationConfigFile != "" {
		wrong("it cannot be combined with %s: put the issuer into the file",
			o.name(&o.OIDC.IssuerURL))
	}
}

func (o *Options) checkModes(wrong report) {
	for i, mode := range o.AuthorizationModes {
		if slices.Contains(o.AuthorizationModes[:i], mode) {
			wrong("%s is given twice", mode)
		}
		if !slices.Contains(auth.Modes(), mode) {
			wrong("%q is not one of %s", mode, strings.Join(auth.Modes(), ", "))
		}
	}
}

func (o *Options) checkAuthorizationWebhook(wrong report) {
	switch asked := slices.Contains(o.AuthorizationModes, auth.ModeWebhook); {
	case o.AuthorizationConfigFile != "": // which replaces both
	case asked && o.AuthorizationWebhook.ConfigFile == "":
		wrong("it must be set for the mode Webhook")
	case !asked && o.AuthorizationWebhook.ConfigFile != "":
		wrong("nothing asks the webhook without the mode Webhook")
	}
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
				o.LoadBalancerRange, cidr, o.name(&o.ServiceClusterIPRange))
		}
	}
	return nil
}

// checkNodes checks the number of simulated nodes.
func (o *Options) checkNodes() error {
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

// checkRuntimeConfig refuses API groups and versions that Kubernetes never had. Removed versions
// and unknown resources are allowed, because another release may have them.
func (o *Options) checkRuntimeConfig(wrong report) {
	for _, key := range slices.Sorted(maps.Keys(o.RuntimeConfig)) {
		parts := strings.Split(key, "/")
		switch {
		case isCoreVersion(key):
			if on, err := strconv.ParseBool(o.RuntimeConfig[key]); err == nil && !on {
				wrong("%q: the server itself needs the core API group, which cannot be switched off", key)
			}
		case len(parts) != 2 && len(parts) != 3:
			wrong("%q: must look like batch/v1, batch/v1/jobs or api/all", key)
		case parts[0] == "api":
			if !slices.Contains([]string{"all", "ga", "beta", "alpha"}, parts[1]) || len(parts) == 3 {
				wrong("%q: must be one of api/all, api/ga, api/beta, api/alpha, api/v1", key)
			}
		case parts[0] == apiextensions.GroupName || parts[0] == apiregistration.GroupName:
			if parts[1] != "v1" && parts[1] != "v1beta1" {
				wrong("%q: the API group %q has no version %q", key, parts[0], parts[1])
			}
		case !clientscheme.Scheme.IsGroupRegistered(parts[0]):
			wrong("%q: there is no API group %q", key, parts[0])
		case !clientscheme.Scheme.IsVersionRegistered(schema.GroupVersion{
			Group:   parts[0],
			Version: parts[1],
		}):
			wrong("%q: the API group %q has no version %q", key, parts[0], parts[1])
		}
		if value := o.RuntimeConfig[key]; value != "" {
			if _, err := strconv.ParseBool(value); err != nil {
				wrong("%q: %q is neither true nor false", key, value)
			}
		}
	}
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
