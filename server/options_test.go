package server_test

import (
	"math"
	"net"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/serverflags"
)

func TestZeroOptionsAreValid(t *testing.T) {
	t.Parallel()
	var o server.Options
	if errs := o.Validate(); len(errs) > 0 {
		t.Error(errs)
	}
	if !reflect.ValueOf(o).IsZero() {
		t.Errorf("Validate changed the options: %+v", o)
	}
}

// TestErrorsNameOptions sets every validated option to an invalid value.
func TestErrorsNameOptions(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		field, flag string
		mistake     func(*server.Options)
	}{
		{"SecurePort", "secure-port", func(o *server.Options) { o.SecurePort = 70000 }},
		{"BindAddress", "bind-address", func(o *server.Options) { o.BindAddress = "nowhere" }},
		{"AdvertiseAddress", "advertise-address",
			func(o *server.Options) { o.AdvertiseAddress = "nowhere" }},
		{"TLSCertFile", "tls-cert-file", func(o *server.Options) { o.TLSPrivateKeyFile = "k" }},
		{"TLSPrivateKeyFile", "tls-private-key-file",
			func(o *server.Options) { o.TLSCertFile = "c" }},
		{"TLSMinVersion", "tls-min-version", func(o *server.Options) { o.TLSMinVersion = "nope" }},
		{"TLSCipherSuites", "tls-cipher-suites",
			func(o *server.Options) { o.TLSCipherSuites = []string{"nope"} }},
		{"HistoryKept", "history-kept", func(o *server.Options) { o.HistoryKept = -1 }},
		{"QuotaBackendBytes", "quota-backend-bytes", func(o *server.Options) { o.QuotaBackendBytes = 1 }},
		{"QuotaBackendBytes", "quota-backend-bytes",
			func(o *server.Options) { o.QuotaBackendBytes = math.MaxInt64 }},
		{"HistoryKept", "history-kept", func(o *server.Options) { o.HistoryKept = math.MaxInt64 }},
		{"EventTTL", "event-ttl", func(o *server.Options) { o.EventTTL = math.MaxInt64 }},
		{"EventTTL", "event-ttl", func(o *server.Options) { o.EventTTL = 1 }},
		{"EventTTL", "event-ttl", func(o *server.Options) { o.EventTTL = -1 }},
		{"RequestTimeout", "request-timeout",
			func(o *server.Options) { o.RequestTimeout = math.MaxInt64 }},
		{"MinRequestTimeout", "min-request-timeout",
			func(o *server.Options) { o.MinRequestTimeout = math.MaxInt }},
		{"MinRequestTimeout", "min-request-timeout",
			func(o *server.Options) { o.MinRequestTimeout = -1 }},
		{"TokenWebhook.CacheTTL", "authentication-token-webhook-cache-ttl",
			func(o *server.Options) { o.TokenWebhook.CacheTTL = math.MaxInt64 }},
		{"AuthorizationWebhook.AuthorizedTTL", "authorization-webhook-cache-authorized-ttl",
			func(o *server.Options) { o.AuthorizationWebhook.AuthorizedTTL = math.MaxInt64 }},
		{"AuthorizationWebhook.UnauthorizedTTL", "authorization-webhook-cache-unauthorized-ttl",
			func(o *server.Options) { o.AuthorizationWebhook.UnauthorizedTTL = math.MaxInt64 }},
		{"ServiceAccountMaxTokenExpiration", "service-account-max-token-expiration",
			func(o *server.Options) { o.ServiceAccountMaxTokenExpiration = -time.Second }},
		{"ServiceAccountMaxTokenExpiration", "service-account-max-token-expiration",
			func(o *server.Options) { o.ServiceAccountMaxTokenExpiration = math.MaxInt64 }},
		{"MaxRequestsInFlight", "max-requests-inflight",
			func(o *server.Options) { o.MaxRequestsInFlight = math.MaxInt }},
		{"MaxMutatingRequestsInFlight", "max-mutating-requests-inflight",
			func(o *server.Options) { o.MaxMutatingRequestsInFlight = math.MaxInt }},
		{"MaxRequestsInFlight", "max-requests-inflight",
			func(o *server.Options) { o.MaxRequestsInFlight = -1 }},
		{"MaxMutatingRequestsInFlight", "max-mutating-requests-inflight",
			func(o *server.Options) { o.MaxMutatingRequestsInFlight = -1 }},
		{"ProxyClientCertFile", "proxy-client-cert-file", func(o *server.Options) {
			o.ProxyClientKeyFile = "k"
		}},
		{"ProxyClientKeyFile", "proxy-client-key-file", func(o *server.Options) {
			o.ProxyClientCertFile = "c"
		}},
		{"EtcdCertFile", "etcd-certfile", func(o *server.Options) { o.EtcdKeyFile = "k" }},
		{"EtcdKeyFile", "etcd-keyfile", func(o *server.Options) { o.EtcdCertFile = "c" }},
		{"AuthorizationModes", "authorization-mode", func(o *server.Options) {
			o.AuthorizationModes = []string{"Nope"}
		}},
		{"ServiceClusterIPRange", "service-cluster-ip-range", func(o *server.Options) {
			o.ServiceClusterIPRange = "nope"
		}},
		{"ServiceNodePortRange", "service-node-port-range", func(o *server.Options) {
			o.ServiceNodePortRange = "nope"
		}},
		{"RuntimeConfig", "runtime-config", func(o *server.Options) {
			o.RuntimeConfig = map[string]string{"nope/v1": "true"}
		}},
		{"EmulatedVersion", "emulated-version", func(o *server.Options) {
			o.EmulatedVersion = "1.12"
		}},
		{"FeatureGates", "feature-gates", func(o *server.Options) {
			o.FeatureGates = map[string]bool{"Nope": true}
		}},
		{"Controllers", "controllers", func(o *server.Options) { o.Controllers = []string{"nope"} }},
		{"SimulatedNodes", "simulate-nodes", func(o *server.Options) { o.SimulatedNodes = -1 }},
		{"StandInPorts", "stand-in-ports", func(o *server.Options) {
			o.StandInPorts = []string{"9-8"}
		}},
		{"SimulatedLogDir", "simulated-log-dir", func(o *server.Options) {
			o.SimulatedLogDir = "does/not/exist"
		}},
		{"LoadBalancerRange", "load-balancer-range", func(o *server.Options) {
			o.LoadBalancerRange = "192.0.2.1/24"
		}},
		{"LoadBalancerRange", "load-balancer-range", func(o *server.Options) {
			o.LoadBalancerRange = "10.0.0.128/25" // of the default range of cluster IPs
		}},
		{"SimulatedNodeKinds", "simulate-nodes", func(o *server.Options) {
			o.SimulatedNodeKinds = []server.SimulatedNodeKind{{Name: "gpu"}, {Name: "gpu"}}
		}},
		{"SimulatedNodeCapacity", "simulated-node-capacity", func(o *server.Options) {
			o.SimulatedNodeCapacity = corev1.ResourceList{"example.com/gpu": resource.MustParse("1500m")}
		}},
		{"Admission", "enable-admission-plugins", func(o *server.Options) {
			o.Admission = server.NewAdmissionOptions()
			o.Admission.EnablePlugins = []string{"Nope"}
		}},
	} {
		t.Run(test.field, func(t *testing.T) {
			t.Parallel()
			var o server.Options
			test.mistake(&o)
			wantOne(t, o.Validate(), "Options."+test.field+": ")
			if _, err := server.New(o); err == nil ||
				!strings.Contains(err.Error(), "Options."+test.field+": ") {
				t.Errorf("New: %v", err)
			}

			var bound server.Options
			var sections cliflag.NamedFlagSets
			serverflags.Add(&bound, &sections)
			test.mistake(&bound)
			wantOne(t, bound.Validate(), "--"+test.flag)
			known := false
			for _, set := range sections.FlagSets {
				known = known || set.Lookup(test.flag) != nil
			}
			if !known {
				t.Errorf("flag --%s does not exist", test.flag)
			}
		})
	}
}

// wantOne checks that there is exactly one error and that it begins with the name of an option.
func wantOne(t *testing.T, errs []error, name string) {
	t.Helper()
	// The Kubernetes libraries write flags without dashes.
	if len(errs) != 1 ||
		!strings.HasPrefix(strings.TrimLeft(errs[0].Error(), "-"), strings.TrimLeft(name, "-")) {
		t.Errorf("got %q, want one error that begins with %q", errs, name)
	}
}

// Errors of Start name the option too.
func TestStartNamesOptions(t *testing.T) {
	t.Parallel()
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	for want, o := range map[string]server.Options{
		"Options.SecurePort: listen on " + busy.Addr().String(): {
			SecurePort: busy.Addr().(*net.TCPAddr).Port,
		},
		"Options.ClientCAFile: ": {ClientCAFile: "nope"},
		"Options.EtcdServers: ":  {EtcdServers: []string{"http://127.0.0.1:1"}},
	} {
		s, err := server.New(o)
		if err == nil {
			err = s.Start(t.Context())
		}
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// TestAlwaysAllowIsWarnedOf combines authorization modes with anonymous requests.
func TestAlwaysAllowIsWarnedOf(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		modes            []string
		disableAnonymous bool
		warned           bool
	}{
		{modes: nil},
		{modes: []string{"Node", "RBAC"}},
		{modes: []string{"AlwaysDeny"}},
		{modes: []string{"AlwaysAllow"}, warned: true},
		{modes: []string{"RBAC", "AlwaysAllow"}, warned: true},
		{modes: []string{"AlwaysAllow"}, disableAnonymous: true},
	} {
		o := server.Options{AuthorizationModes: test.modes, DisableAnonymous: test.disableAnonymous}
		warnings := o.Warnings()
		if warned := slices.ContainsFunc(warnings, func(w string) bool {
			return strings.Contains(w, "Options.AuthorizationModes")
		}); warned != test.warned {
			t.Errorf("modes %v, anonymous requests disabled: %t: got warnings %q",
				test.modes, test.disableAnonymous, warnings)
		}
	}
}
