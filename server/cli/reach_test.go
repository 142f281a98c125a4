package cli_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"
	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/auth/pki"
	"github.com/kinproc/kinproc/server/internal/flags"
	"github.com/kinproc/kinproc/server/serverflags"
)

// reach is a level of access. Each level that is not an outright refusal includes the ones before
// it.
type reach int

const (
	reachUnknown reach = iota // every request gets a 401
	reachNothing              // every request gets a 403
	reachHealth               // what Kubernetes shows to everybody: health and version
	// what Kubernetes shows to every user: discovery, and the user's own identity and permissions
	reachDiscovery
	// what Kubernetes shows to every service account: the keys that verify service account tokens
	reachIssuer
	reachEverything // the access of an administrator
)

// routes are requests with the reach that they require and the status code for callers who have it.
// None of them changes anything.
var routes = []struct {
	needs        reach
	method, path string
	body         string
	found        int
}{
	{reachHealth, "GET", "/healthz", "", 200},
	{reachHealth, "GET", "/livez", "", 200},
	{reachHealth, "GET", "/readyz", "", 200},
	{reachHealth, "GET", "/version", "", 200},

	{reachDiscovery, "GET", "/api", "", 200},
	{reachDiscovery, "GET", "/api/v1", "", 200},
	{reachDiscovery, "GET", "/apis", "", 200},
	{reachDiscovery, "GET", "/apis/apps/v1", "", 200},
	{reachDiscovery, "GET", "/openapi/v2", "", 200},
	{reachDiscovery, "GET", "/openapi/v3", "", 200},
	{reachDiscovery, "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", `{}`, 201},
	{
		reachDiscovery, "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
		`{"spec":{"nonResourceAttributes":{"path":"/","verb":"get"}}}`, 201,
	},
	{
		reachDiscovery, "POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
		`{"spec":{"namespace":"default"}}`, 201,
	},

	{reachIssuer, "GET", "/.well-known/openid-configuration", "", 200},
	{reachIssuer, "GET", "/openid/v1/jwks", "", 200},

	{reachEverything, "GET", "/", "", 200},
	{reachEverything, "GET", "/healthz/etcd", "", 200},
	{reachEverything, "GET", "/livez/ping", "", 200},
	{reachEverything, "GET", "/readyz/ping", "", 200},
	{reachEverything, "GET", "/metrics", "", 200},
	{reachEverything, "GET", "/metrics/slis", "", 200},
	{reachEverything, "GET", "/flagz", "", 200},
	{reachEverything, "GET", "/statusz", "", 200},
	{reachEverything, "GET", "/debug/pprof/", "", 200},
	{reachEverything, "GET", "/debug/pprof/goroutine", "", 200},
	{reachEverything, "PUT", "/debug/flags/v", "", 400},
	{reachEverything, "GET", "/debug/api_priority_and_fairness/dump_requests", "", 200},
	{reachEverything, "GET", "/kinproc/v1/trace", "", 404},
	{reachEverything, "GET", "/logs/", "", 404},
	{reachEverything, "GET", "/nothing", "", 404},
	{reachEverything, "GET", "/api/v1/secrets", "", 200},
	{reachEverything, "GET", "/api/v1/namespaces/kube-system/secrets/none", "", 404},
	{reachEverything, "GET", "/api/v1/namespaces", "", 200},
	{reachEverything, "GET", "/api/v1/namespaces/default/configmaps", "", 200},
	{
		reachEverything, "GET",
		"/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication", "", 200,
	},
	{reachEverything, "GET", "/api/v1/nodes", "", 200},
	{reachEverything, "GET", "/api/v1/nodes/none/proxy/", "", 404},
	{reachEverything, "GET", "/api/v1/namespaces/default/pods/none/log", "", 404},
	{reachEverything, "GET", "/api/v1/namespaces/default/pods/none/exec?command=id", "", 404},
	{reachEverything, "GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles", "", 200},
	{reachEverything, "GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "", 200},
	{reachEverything, "GET", "/apis/apiregistration.k8s.io/v1/apiservices", "", 200},
	{reachEverything, "POST", "/api/v1/namespaces?dryRun=All", `{"metadata":{"name":"new"}}`, 201},
	{reachEverything, "DELETE", "/api/v1/namespaces/none", "", 404},
	{
		reachEverything, "POST", "/api/v1/namespaces/default/serviceaccounts/none/token", `{"spec":{}}`,
		404,
	},
	{
		reachEverything, "POST", "/apis/authentication.k8s.io/v1/tokenreviews", `{"spec":{"token":"x"}}`,
		201,
	},
	{
		reachEverything, "POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews",
		`{"spec":{"user":"x","nonResourceAttributes":{"path":"/","verb":"get"}}}`, 201,
	},
	{
		reachEverything, "POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings?dryRun=All",
		`{"metadata":{"name":"new"},
		"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},
		"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"jane"}]}`, 201,
	},
}

// reachCase is a way to start the program, with the reach that a caller without credentials and an
// ordinary user must have then.
type reachCase struct {
	args            []string
	anonymous, jane reach
	// others returns additional callers.
	others func(t *testing.T, r *reaching) map[string]expected
}

type expected struct {
	who caller
	has reach
}

// reachCases covers every flag that may weaken the server, with its weakest value.
func reachCases(n *neighbours) map[string]reachCase {
	file := func(name string) string { return filepath.Join(n.dir, name) }
	return map[string]reachCase{
		"the defaults": {
			anonymous: reachHealth,
			jane:      reachDiscovery,
			others: func(t *testing.T, r *reaching) map[string]expected {
				return map[string]expected{"a service account": {bearer(r.serviceAccountToken(t)), reachIssuer}}
			},
		},
		"anonymous requests are refused": {
			args:      []string{"--anonymous-auth=false"},
			anonymous: reachUnknown,
			jane:      reachDiscovery,
		},
		"AlwaysAllow": {
			args:      []string{"--authorization-mode=AlwaysAllow", "--anonymous-auth=true"},
			anonymous: reachUnknown,
			jane:      reachEverything,
		},
		"AlwaysAllow in the end": {
			args:      []string{"--authorization-mode=Node,RBAC,AlwaysAllow"},
			anonymous: reachUnknown,
			jane:      reachEverything,
		},
		"AlwaysDeny": {
			args:      []string{"--authorization-mode=AlwaysDeny"},
			anonymous: reachNothing,
			jane:      reachNothing,
		},
		"Node": {
			args:      []string{"--authorization-mode=Node"},
			anonymous: reachNothing,
			jane:      reachNothing,
		},
		"Node and RBAC": {
			args:      []string{"--authorization-mode=Node,RBAC"},
			anonymous: reachHealth,
			jane:      reachDiscovery,
		},
		"static tokens": {
			args:      []string{"--token-auth-file=" + file("tokens.csv")},
			anonymous: reachHealth,
			jane:      reachDiscovery,
			others: func(*testing.T, *reaching) map[string]expected {
				return map[string]expected{
					"a token":                    {bearer("black"), reachDiscovery},
					"a token of system:masters":  {bearer("white"), reachEverything},
					"a token with more after it": {bearer("whiter"), reachUnknown},
				}
			},
		},
		"bootstrap tokens": {
			args:      []string{"--enable-bootstrap-token-auth"},
			anonymous: reachHealth,
			jane:      reachDiscovery,
			others: func(t *testing.T, r *reaching) map[string]expected {
				return map[string]expected{
					"a bootstrap token":       {bearer(r.bootstrapToken(t)), reachDiscovery},
					"another bootstrap token": {bearer("abcdef.ffffffffffffffff"), reachUnknown},
				}
			},
		},
		"another authority of clients": {
			args:      []string{"--client-ca-file=" + file("ca.crt")},
			anonymous: reachHealth,
			jane:      reachDiscovery,
			others: func(t *testing.T, _ *reaching) map[string]expected {
				return map[string]expected{
					"a certificate": {caller{cert: n.client(t, "joe")}, reachDiscovery},
					"a certificate of system:masters": {
						caller{cert: n.client(t, "joe", "system:masters")}, reachEverything,
					},
					"a certificate with proxy's header": {
						caller{cert: n.client(t, "joe")}.with(asRoot...), reachDiscovery,
					},
				}
			},
		},
		"proxies with names": {
			args: []string{
				"--requestheader-client-ca-file=" + file("ca.crt"), "--requestheader-allowed-names=proxy",
			},
			anonymous: reachHealth, jane: reachDiscovery,
			others: func(t *testing.T, _ *reaching) map[string]expected {
				return map[string]expected{
					"the proxy for a user": {
						caller{cert: n.client(t, "proxy")}.with("X-Remote-User", "joe"), reachDiscovery,
					},
					"the proxy for an admin": {
						caller{cert: n.client(t, "proxy")}.with(asRoot...), reachEverything,
					},
					"the proxy for nobody": {caller{cert: n.client(t, "proxy")}, reachUnknown},
					"another of its authority": {
						caller{cert: n.client(t, "stray")}.with(asRoot...), reachUnknown,
					},
					"somebody with masters in it": {
						caller{cert: n.client(t, "stray", "system:masters")}, reachUnknown,
					},
				}
			},
		},
		// Everyone whose certificate the authority signs may name users, so it must sign for nobody
		// else.
		"proxies without names": {
			args:      []string{"--requestheader-client-ca-file=" + file("ca.crt")},
			anonymous: reachHealth,
			jane:      reachDiscovery,
			others: func(t *testing.T, _ *reaching) map[string]expected {
				return map[string]expected{
					"any for a user": {
						caller{cert: n.client(t, "any")}.with("X-Remote-User", "joe"), reachDiscovery,
					},
					"any for an admin": {caller{cert: n.client(t, "any")}.with(asRoot...), reachEverything},
					"any for nobody":   {caller{cert: n.client(t, "any", "system:masters")}, reachUnknown},
				}
			},
		},
		"keys of service accounts": {
			args: []string{
				"--service-account-issuer=https://one.example.com,https://kubernetes.default.svc",
				"--service-account-signing-key-file=" + file("sa.key"),
				"--service-account-key-file=" + file("sa.pub"),
				"--api-audiences=one,https://kubernetes.default.svc",
				"--service-account-jwks-uri=https://one.example.com/keys",
			},
			anonymous: reachHealth, jane: reachDiscovery,
			others: func(t *testing.T, r *reaching) map[string]expected {
				return map[string]expected{"a service account": {bearer(r.serviceAccountToken(t)), reachIssuer}}
			},
		},
		"a file of authorizers": {
			args:      []string{"--authorization-config=" + file("authorization.yaml")},
			anonymous: reachNothing,
			jane:      reachNothing,
		},
		"a file of authenticators": {
			args:      []string{"--authentication-config=" + file("authentication.yaml")},
			anonymous: reachUnknown,
			jane:      reachDiscovery,
		},
		"etcd for other programs": {
			args: []string{"--listen-etcd=127.0.0.1:0"}, anonymous: reachHealth, jane: reachDiscovery,
		},
		"all the rest": {
			args: []string{
				"--bind-address=0.0.0.0", "--etcd-servers=" + n.etcd, "--etcd-prefix=/open",
				"--controllers=-*", "--emulated-version=1.34", "--runtime-config=api/all=true", "--feature-gates=AllBeta=true",
				"--disable-admission-plugins=" + strings.Join(admissionPlugins(), ","),
				"--enable-aggregator-routing", "--audit-log-path=" + file("audit.log"),
				"--audit-policy-file=" + file("policy.yaml"), "--max-requests-inflight=100000",
				"--proxy-client-cert-file=" + file("proxy.crt"), "--proxy-client-key-file=" + file("proxy.key"),
				"--v=9",
			},
			anonymous: reachHealth, jane: reachDiscovery,
		},
	}
}

// TestReach starts the program with every flag that may weaken it, and sends all requests as a
// caller without credentials, as an ordinary user, and as impostors. They must reach what
// Kubernetes documents and nothing more, so that no flag opens a hole unnoticed.
func TestReach(t *testing.T) {
	t.Parallel()
	n := newNeighbours(t)
	stranger, err := pki.New(pki.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range reachCases(n) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startReaching(t, test.args)
			jane := caller{cert: r.jane}
			impersonating := reachNothing
			if test.jane == reachEverything {
				impersonating = reachEverything
			}
			callers := map[string]expected{
				"anonymous":                   {caller{}, test.anonymous},
				"anonymous with proxy header": {caller{}.with(asRoot...), test.anonymous},
				"jane":                        {jane, test.jane},
				"jane with proxy header":      {jane.with(asRoot...), test.jane},
				"jane as root": {
					jane.with("Impersonate-User", "root", "Impersonate-Group", "system:masters"), impersonating,
				},
				"a wrong token": {bearer("red"), reachUnknown},
				"an unsigned token": {
					bearer(forgedToken(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType)), reachUnknown,
				},
				"a stranger's token": {
					bearer(forgedToken(t, jwt.SigningMethodES256, stranger.ServiceAccountKey)), reachUnknown,
				},
				"a stranger's certificate": {
					caller{cert: newClient(t, stranger, "root", "system:masters")}, reachUnknown,
				},
			}
			if test.anonymous != reachUnknown {
				callers["anonymous as root"] = expected{
					caller{}.with("Impersonate-User", "root", "Impersonate-Group", "system:masters"), reachNothing,
				}
			}
			for name, c := range callers {
				r.check(t, name, c.who, c.has)
			}
			if test.others != nil {
				for name, c := range test.others(t, r) {
					r.check(t, name, c.who, c.has)
				}
			}
			r.checkPlain(t)
		})
	}
}

// TestReachTriesAllFlags checks that each flag is one that TestReach sets, or that gives no access.
func TestReachTriesAllFlags(t *testing.T) {
	t.Parallel()
	exempt := map[string]bool{ // plugins may only refuse
		"enable-admission-plugins": true, "admission-control-config-file": true,
	}
	for _, test := range reachCases(&neighbours{}) {
		for _, arg := range test.args {
			name, _, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
			exempt[name] = true
		}
	}
	ineffective := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.AddIneffective(ineffective, new([]string))
	serverFlags(func(f *pflag.Flag) {
		// Audit events change nothing, wherever they go.
		audit := strings.HasPrefix(f.Name, "audit-log-") || strings.HasPrefix(f.Name, "audit-webhook-")
		if exempt[f.Name] || audit || ineffective.Lookup(f.Name) != nil ||
			f.Annotations[flags.NoAccess] != nil {
			return
		}
		t.Errorf("nothing checks what --%s gives access to: add it to reachCases, or say in the table "+
			"of options why it gives none", f.Name)
	})
}

// serverFlags calls f for every flag of the server and returns the options that the flags are bound
// to.
func serverFlags(f func(*pflag.Flag)) *server.Options {
	o := &server.Options{}
	var sections cliflag.NamedFlagSets
	serverflags.Add(o, &sections)
	for _, set := range sections.FlagSets {
		set.VisitAll(f)
	}
	return o
}

// admissionPlugins returns the names of all admission plugins.
func admissionPlugins() []string {
	return serverFlags(func(*pflag.Flag) {}).Admission.Plugins.Registered()
}
