package server

import (
	"fmt"

	"github.com/spf13/pflag"
)

func (o *Options) addLimitFlags(f *pflag.FlagSet) {
	f.IntVar(&o.MaxRequestsInFlight, "max-requests-inflight", o.MaxRequestsInFlight,
		"number of concurrent requests, not counting watches, that are added to "+
			"--max-mutating-requests-inflight and divided by API Priority and Fairness; without "+
			"it, the limit of requests that read, or none if 0")
	f.IntVar(&o.MaxMutatingRequestsInFlight, "max-mutating-requests-inflight",
		o.MaxMutatingRequestsInFlight,
		"see --max-requests-inflight; without API Priority and Fairness, the limit of requests "+
			"that write, or none if 0")
	addNegated(f, &o.DisablePriorityAndFairness, "enable-priority-and-fairness",
		"divide concurrent requests among clients with API Priority and Fairness")
	addNegated(f, &o.DisableProfiling, "profiling", "serve profiles at /debug/pprof")
}

// addFixedFlags adds the flags of kube-apiserver that scripts pass although they change nothing
// here. They are not in the help.
func (o *Options) addFixedFlags(f *pflag.FlagSet) {
	add := func(value pflag.Value, name string) *pflag.Flag {
		flag := f.VarPF(value, name, "", "")
		flag.Hidden = true
		return flag
	}
	for _, flag := range []struct{ name, value string }{
		{"insecure-port", "0"},
		{"storage-backend", "etcd3"},
		{"storage-media-type", "application/vnd.kubernetes.protobuf"},
		{"endpoint-reconciler-type", "lease"},
		{"apiserver-count", "1"},
		{"kubernetes-service-node-port", "0"},
		{"service-account-lookup", "true"},
		{"service-account-extend-token-expiration", "true"},
		{"enable-garbage-collector", "true"},
		{"watch-cache", "true"},
		{"logging-format", "text"},
	} {
		added := add(fixed{flag.value}, flag.name)
		if flag.value == "true" {
			added.NoOptDefVal = flag.value
		}
	}
	for _, name := range []string{
		"kubelet-certificate-authority", "kubelet-client-certificate", "kubelet-client-key",
		"kubelet-port", "kubelet-preferred-address-types", "kubelet-read-only-port", "kubelet-timeout",
	} {
		add(ineffective{name, &o.ineffective}, name)
	}
}

// fixed is the value of a flag that describes what the control plane does in any case, so only one
// value is accepted.
type fixed struct{ value string }

func (f fixed) String() string { return f.value }
func (f fixed) Type() string   { return "string" }

func (f fixed) Set(s string) error {
	if s != f.value {
		return fmt.Errorf("kinproc supports only %s; leave the flag out", f.value)
	}
	return nil
}

// ineffective is the value of a flag about connections to kubelets, of which there are none. The
// options warn that the flag has no effect.
type ineffective struct {
	name  string
	given *[]string
}

func (i ineffective) String() string { return "" }
func (i ineffective) Type() string   { return "string" }

func (i ineffective) Set(string) error {
	*i.given = append(*i.given, i.name)
	return nil
}
