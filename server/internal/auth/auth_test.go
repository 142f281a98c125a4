package auth

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/kinproc/kinproc/chain/core"
	"github.com/kinproc/kinproc/server/internal/auth/pki"
	"github.com/kinproc/kinproc/server/internal/auth/rbacauthorizer"
	"github.com/kinproc/kinproc/server/internal/auth/serviceaccount"
)

func TestAuthentication(t *testing.T) {
	t.Parallel()
	p, err := pki.New(pki.Options{})
	check(t, err)
	clientCA, err := dynamiccertificates.NewStaticCAContent("client-ca", p.CA.Cert)
	check(t, err)
	proxyCA, err := dynamiccertificates.NewStaticCAContent("front-proxy-ca", p.FrontProxyCA.Cert)
	check(t, err)
	file := filepath.Join(t.TempDir(), "tokens.csv")
	check(t, os.WriteFile(file, []byte("tok,carol,7,\"devs,ops\"\n"), 0o600))
	tokens, err := serviceaccount.New(serviceaccount.Options{Key: p.ServiceAccountKey})
	check(t, err)
	account := &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "bot", UID: "1"},
	}
	signed, err := tokens.Issue(t.Context(),
		core.Token{Account: account, Audiences: tokens.Audiences(), Lifetime: time.Hour})
	check(t, err)
	authentication := Authentication{
		ClientCA:      clientCA,
		RequestHeader: requestHeader(proxyCA, pki.ProxyUser),
		TokenFile:     file,
		Audiences:     tokens.Audiences(),
		ServiceAccounts: tokens.Authenticator(serviceaccount.FromClient(
			fake.NewClientset(account).CoreV1())),
		Anonymous: &apiserver.AnonymousAuthConfig{Enabled: true},
	}
	a, err := authentication.New()
	check(t, err)
	alice, err := p.CA.Client("alice", []string{"devs"}, 0)
	check(t, err)
	stranger, err := p.FrontProxyCA.Client("stranger", nil, 0)
	check(t, err)

	for name, test := range map[string]struct {
		client *pki.Pair
		header http.Header
		want   *user.DefaultInfo
		fails  bool
	}{
		"nobody": {
			want: &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}},
		},
		"certificate": {
			client: &alice,
			want:   &user.DefaultInfo{Name: "alice", Groups: []string{"devs", user.AllAuthenticated}},
		},
		"admin": {client: &p.Admin, want: &user.DefaultInfo{
			Name:   pki.AdminUser,
			Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated},
		}},
		"token": {
			header: http.Header{"Authorization": {"Bearer tok"}},
			want: &user.DefaultInfo{
				Name:   "carol",
				UID:    "7",
				Groups: []string{"devs", "ops", user.AllAuthenticated},
			},
		},
		"wrong token": {header: http.Header{"Authorization": {"Bearer wrong"}}, fails: true},
		"no bearer": {
			header: http.Header{"Authorization": {"Basic YTpi"}},
			want:   &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}},
		},
		"account": {
			header: http.Header{"Authorization": {"Bearer " + signed}},
			want: &user.DefaultInfo{
				Name: "system:serviceaccount:shop:bot", UID: "1",
				Groups: []string{
					"system:serviceaccounts", "system:serviceaccounts:shop", user.AllAuthenticated,
				},
			},
		},
		"proxy": {
			client: &p.Proxy, header: http.Header{"X-Remote-User": {"dave"}, "X-Remote-Group": {"a", "b"}},
			want: &user.DefaultInfo{Name: "dave", Groups: []string{"a", "b", user.AllAuthenticated}},
		},
		"headers of a user": {
			client: &alice, header: http.Header{"X-Remote-User": {"root"}},
			want: &user.DefaultInfo{Name: "alice", Groups: []string{"devs", user.AllAuthenticated}},
		},
		"another proxy": {
			client: &stranger,
			header: http.Header{"X-Remote-User": {"root"}},
			fails:  true,
		},
		"stray headers": {
			header: http.Header{"X-Remote-User": {"root"}},
			want:   &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}},
		},
		"proxy by itself": {client: &p.Proxy, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "https://localhost/api", nil)
			if test.header != nil {
				r.Header = test.header
			}
			r.TLS = &tls.ConnectionState{}
			if test.client != nil {
				pair, err := test.client.TLS()
				check(t, err)
				r.TLS.PeerCertificates = []*x509.Certificate{pair.Leaf}
			}
			response, ok, err := a.AuthenticateRequest(r)
			if test.fails {
				if ok || err == nil {
					t.Errorf("authenticated as %v", response)
				}
				return
			}
			if err != nil || !ok {
				t.Fatalf("not authenticated: %v", err)
			}
			got := &user.DefaultInfo{
				Name:   response.User.GetName(),
				UID:    response.User.GetUID(),
				Groups: response.User.GetGroups(),
			}
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
	if _, err := (Authentication{}).New(); err == nil {
		t.Error("created an authenticator that accepts no credentials")
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestAuthorization(t *testing.T) {
	t.Parallel()
	onNode := func(name, nodeName string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
			Spec: corev1.PodSpec{
				NodeName: nodeName, ServiceAccountName: name,
				Volumes: []corev1.Volume{{
					Name:         "v",
					VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name}},
				}},
				Containers: []corev1.Container{{EnvFrom: []corev1.EnvFromSource{{
					ConfigMapRef: &corev1.ConfigMapEnvSource{
						LocalObjectReference: corev1.LocalObjectReference{Name: name},
					},
				}}}},
			},
		}
	}
	roles := fake.NewClientset(
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "reader"}, Rules: []rbacv1.PolicyRule{
			{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}},
		}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "readers"},
			RoleRef:    rbacv1.RoleRef{Kind: "ClusterRole", Name: "reader"},
			Subjects:   []rbacv1.Subject{{Kind: "Group", Name: "readers"}},
		},
	)
	authorization := Authorization{
		Roles:  rbacauthorizer.FromClient(roles.RbacV1()),
		Client: fake.NewClientset(onNode("mine", "n1"), onNode("theirs", "n2")),
	}
	a, err := authorization.New()
	check(t, err)
	reader := &user.DefaultInfo{Name: "r", Groups: []string{"readers"}}
	root := &user.DefaultInfo{Name: "root", Groups: []string{user.SystemPrivilegedGroup}}
	kubelet := &user.DefaultInfo{Name: "system:node:n1", Groups: []string{user.NodesGroup}}
	impostor := &user.DefaultInfo{Name: "system:node:n1"}
	for _, test := range []struct {
		user                                   user.Info
		verb, group, resource, namespace, name string
		allowed                                bool
	}{
		{reader, "get", "", "pods", "shop", "x", true},
		{reader, "delete", "", "pods", "shop", "x", false},
		{root, "delete", "any", "things", "shop", "x", true},
		{kubelet, "get", "", "secrets", "shop", "mine", true},
		{kubelet, "get", "", "secrets", "shop", "theirs", false},
		{kubelet, "list", "", "secrets", "shop", "", false},
		{kubelet, "get", "", "configmaps", "shop", "mine", true},
		{kubelet, "get", "", "configmaps", "shop", "theirs", false},
		{kubelet, "create", "", "serviceaccounts/token", "shop", "mine", true},
		{kubelet, "create", "", "serviceaccounts/token", "shop", "theirs", false},
		{kubelet, "get", "", "pods", "shop", "mine", true},
		{kubelet, "get", "", "pods", "shop", "theirs", false},
		{kubelet, "list", "", "pods", "", "", false},
		{kubelet, "delete", "", "pods", "shop", "theirs", true}, // left to admission
		{kubelet, "get", "", "nodes", "", "n1", true},
		{kubelet, "get", "", "nodes", "", "n2", false},
		{kubelet, "list", "", "nodes", "", "", false},
		{kubelet, "list", "", "services", "", "", true},
		{kubelet, "delete", "", "services", "shop", "x", false},
		{kubelet, "update", "coordination.k8s.io", "leases", "kube-node-lease", "n1", true},
		{kubelet, "update", "coordination.k8s.io", "leases", "kube-node-lease", "n2", false},
		{kubelet, "update", "coordination.k8s.io", "leases", "kube-system", "n1", false},
		{kubelet, "get", "storage.k8s.io", "csinodes", "", "n2", false},
		{impostor, "list", "", "services", "", "", false},
	} {
		resource, sub, _ := strings.Cut(test.resource, "/")
		decision, reason, err := a.Authorize(t.Context(), authorizer.AttributesRecord{
			User:            test.user,
			Verb:            test.verb,
			APIGroup:        test.group,
			Resource:        resource,
			Subresource:     sub,
			Namespace:       test.namespace,
			Name:            test.name,
			ResourceRequest: true,
		})
		if err != nil || (decision == authorizer.DecisionAllow) != test.allowed {
			t.Errorf("%s %s %s/%s by %s: %v %q %v", test.verb, test.resource, test.namespace, test.name,
				test.user.GetName(), decision, reason, err)
		}
	}
	if _, _, incomplete, err := a.RulesFor(t.Context(), kubelet, "shop"); !incomplete ||
		err == nil {
		t.Error("the rules of a kubelet are reported as complete")
	}
	if _, _, incomplete, err := a.RulesFor(t.Context(), reader, "shop"); incomplete ||
		err != nil {
		t.Errorf("the rules of a reader: incomplete %t, %v", incomplete, err)
	}
	for _, modes := range [][]string{{"RBAC", "RBAC"}, {"Rbac"}, {"Webhook"}} {
		authorization.Modes = modes
		if _, err := authorization.New(); err == nil {
			t.Errorf("modes %v were accepted", modes)
		}
	}
}

// requestHeader trusts the headers that kube-apiserver's aggregator sends if they come from a proxy
// with one of the common names and a certificate signed by ca.
func requestHeader(
	ca dynamiccertificates.CAContentProvider, commonNames ...string,
) *authenticatorfactory.RequestHeaderConfig {
	return &authenticatorfactory.RequestHeaderConfig{
		CAContentProvider:   ca,
		AllowedClientNames:  headerrequest.StaticStringSlice(commonNames),
		UsernameHeaders:     headerrequest.StaticStringSlice{"X-Remote-User"},
		UIDHeaders:          headerrequest.StaticStringSlice{"X-Remote-Uid"},
		GroupHeaders:        headerrequest.StaticStringSlice{"X-Remote-Group"},
		ExtraHeaderPrefixes: headerrequest.StaticStringSlice{"X-Remote-Extra-"},
	}
}
