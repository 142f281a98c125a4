package flags

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// The flags of kube-apiserver that scripts pass although they change nothing here. They are not in
// the help. The flags that cannot be honoured are in server/cli/internal/standin.

// fixedFlags describe what the control plane does in any case, so only one value is accepted.
var fixedFlags = []struct{ name, value string }{
	{"aggregator-reject-forwarding-redirect", "true"},
	{"apiserver-count", "1"},
	{"enable-garbage-collector", "true"},
	{"endpoint-reconciler-type", "lease"},
	{"insecure-port", "0"},
	{"kubernetes-service-node-port", "0"},
	{"service-account-extend-token-expiration", "true"},
	{"service-account-lookup", "true"},
	{"storage-backend", "etcd3"},
	{"storage-media-type", "application/vnd.kubernetes.protobuf"},
}

// ineffectiveFlags are accepted with any value, by the reason why they have no effect.
var ineffectiveFlags = []struct{ why, names string }{
	{"there are no kubelets to connect to", `kubelet-certificate-authority kubelet-client-certificate
		kubelet-client-key kubelet-port kubelet-preferred-address-types kubelet-read-only-port
		kubelet-timeout max-connection-bytes-per-sec`},
	{"a resource has a watch cache from its first watch on", `default-watch-cache-size watch-cache
		watch-cache-sizes`},
	{"collections are deleted four objects at a time", "delete-collection-workers"},
	{"the port is not shared", "permit-address-sharing permit-port-sharing"},
	{"kinproc uses etcd in its own way", `etcd-compaction-interval etcd-count-metric-poll-period
		etcd-db-metric-poll-interval etcd-healthcheck-timeout etcd-readycheck-timeout
		lease-reuse-duration-seconds storage-initialization-timeout`},
	{"kinproc logs in its own way, see -v", `log-flush-frequency log-json-info-buffer-size
		log-json-split-stream log-text-info-buffer-size log-text-split-stream logging-format vmodule`},
	{"there are no log files to serve", "enable-logs-handler"},
	{"no leaders are elected for others", `coordinated-leadership-lease-duration
		coordinated-leadership-renew-deadline coordinated-leadership-retry-period`},
	{"connections stay at the server that they lead to", "goaway-chance"},
	{"the server is ready when it listens, and stops at once", `livez-grace-period
		shutdown-delay-duration shutdown-send-retry-after shutdown-watch-termination-grace-period`},
	{"waits for locks are not profiled", "contention-profiling"},
}

// booleanFlags are the flags above that need no value.
const booleanFlags = ` aggregator-reject-forwarding-redirect contention-profiling
	enable-garbage-collector enable-logs-handler log-json-split-stream log-text-split-stream
	permit-address-sharing permit-port-sharing service-account-extend-token-expiration
	service-account-lookup shutdown-send-retry-after watch-cache `

// AddIneffective adds the flags that change nothing. It appends to given the reasons of those that
// are given.
func AddIneffective(f *pflag.FlagSet, given *[]string) {
	add := func(value pflag.Value, name string) {
		flag := f.VarPF(value, name, "", "")
		flag.Hidden = true
		for boolean := range strings.FieldsSeq(booleanFlags) {
			if name == boolean {
				flag.NoOptDefVal = "true"
			}
		}
	}
	for _, flag := range fixedFlags {
		add(fixed{flag.value}, flag.name)
	}
	for _, flags := range ineffectiveFlags {
		for name := range strings.FieldsSeq(flags.names) {
			add(ineffective{"--" + name + " has no effect: " + flags.why, given}, name)
		}
	}
}

// fixed is the value of a flag that can have no other.
type fixed struct{ value string }

func (f fixed) String() string { return f.value }
func (f fixed) Type() string   { return "string" }

func (f fixed) Set(s string) error {
	if s != f.value {
		return fmt.Errorf("kinproc supports only %s; leave the flag out", f.value)
	}
	return nil
}

// ineffective is the value of a flag that changes nothing. The options warn of it.
type ineffective struct {
	warning string
	given   *[]string
}

func (i ineffective) String() string { return "" }
func (i ineffective) Type() string   { return "string" }

func (i ineffective) Set(string) error {
	*i.given = append(*i.given, i.warning)
	return nil
}
