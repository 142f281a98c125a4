package certificaterequests_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/keyutil"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/auth/pki"
	"github.com/kinproc/kinproc/server/internal/controllers/certificaterequests"
	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
	"github.com/kinproc/kinproc/server/servertest"
)

// asked is a request with the key for its certificate.
type asked struct {
	*certificatesv1.CertificateSigningRequest
	key []byte
}

// ask creates a request.
func ask(
	t *testing.T, client kubernetes.Interface, name, signer string, template x509.CertificateRequest,
	validity *int32, usages ...certificatesv1.KeyUsage,
) asked {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ok(t, err)
	der, err := x509.CreateCertificateRequest(rand.Reader, &template, key)
	ok(t, err)
	encoded, err := keyutil.MarshalPrivateKeyToPEM(key)
	ok(t, err)
	r, err := client.CertificatesV1().CertificateSigningRequests().Create(t.Context(),
		&certificatesv1.CertificateSigningRequest{
			// Without a field that its creator owns, a request has no managed fields.
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"test": name}},
			Spec: certificatesv1.CertificateSigningRequestSpec{
				Request:           pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
				SignerName:        signer,
				Usages:            usages,
				ExpirationSeconds: validity,
			},
		}, metav1.CreateOptions{})
	ok(t, err)
	return asked{r, encoded}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// decide adds a condition, as kubectl certificate approve and deny do.
func decide(
	t *testing.T, client kubernetes.Interface, a asked, c certificatesv1.RequestConditionType,
) {
	t.Helper()
	requests := client.CertificatesV1().CertificateSigningRequests()
	r, err := requests.Get(t.Context(), a.Name, metav1.GetOptions{})
	ok(t, err)
	r.Status.Conditions = append(r.Status.Conditions,
		certificatesv1.CertificateSigningRequestCondition{
			Type: c, Status: corev1.ConditionTrue, Reason: "Test", LastUpdateTime: metav1.Now(),
		})
	_, err = requests.UpdateApproval(t.Context(), r.Name, r, metav1.UpdateOptions{})
	ok(t, err)
}

// await waits until a request is as wanted.
func await(
	t *testing.T, client kubernetes.Interface, name string,
	wanted func(*certificatesv1.CertificateSigningRequest) bool,
) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	var r *certificatesv1.CertificateSigningRequest
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, 30*time.Second, true,
		func(ctx context.Context) (_ bool, err error) {
			r, err = client.CertificatesV1().CertificateSigningRequests().Get(ctx, name,
				metav1.GetOptions{})
			return err == nil && wanted(r), err
		})
	if err != nil {
		t.Fatalf("%v; the request is %+v", err, r)
	}
	return r
}

func issued(r *certificatesv1.CertificateSigningRequest) bool {
	return len(r.Status.Certificate) > 0
}

func parse(t *testing.T, encoded []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(encoded)
	cert, err := x509.ParseCertificate(block.Bytes)
	ok(t, err)
	return cert
}

func TestApprovedRequestIsSigned(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t)
	client := kubernetes.NewForConfigOrDie(s.RESTConfig())
	subject := x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "jane", Organization: []string{"dev"}},
	}
	a := ask(t, client, "jane", certificatesv1.KubeAPIServerClientSignerName, subject,
		new(int32(3600)), certificatesv1.UsageClientAuth)
	denied := ask(t, client, "denied", certificatesv1.KubeAPIServerClientSignerName, subject, nil,
		certificatesv1.UsageClientAuth)
	decide(t, client, denied, certificatesv1.CertificateDenied)
	foreign := ask(t, client, "foreign", "example.com/signer", subject, nil,
		certificatesv1.UsageClientAuth)
	decide(t, client, foreign, certificatesv1.CertificateApproved)
	decide(t, client, a, certificatesv1.CertificateApproved)
	r := await(t, client, "jane", issued)

	cert := parse(t, r.Status.Certificate)
	if left := time.Until(cert.NotAfter); left > time.Hour || left < 55*time.Minute {
		t.Errorf("the certificate is valid for %v, want an hour", left)
	}
	if cert.KeyUsage != 0 || !slices.Equal(cert.ExtKeyUsage, []x509.ExtKeyUsage{
		x509.ExtKeyUsageClientAuth,
	}) || cert.IsCA {
		t.Errorf("the usages are %v and %v, CA: %t", cert.KeyUsage, cert.ExtKeyUsage, cert.IsCA)
	}
	i := slices.IndexFunc(r.ManagedFields, func(m metav1.ManagedFieldsEntry) bool {
		return m.Manager == "kube-controller-manager" && m.Subresource == "status"
	})
	if i < 0 {
		t.Errorf("the managed fields are %v", r.ManagedFields)
	}

	config := rest.AnonymousClientConfig(s.RESTConfig())
	config.CertData, config.KeyData = r.Status.Certificate, a.key
	self, err := kubernetes.NewForConfigOrDie(config).AuthenticationV1().SelfSubjectReviews().Create(
		t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	ok(t, err)
	if user := self.Status.UserInfo; user.Username != "jane" || !slices.Contains(user.Groups, "dev") {
		t.Errorf("the certificate is that of %v", user)
	}
	for _, name := range []string{"denied", "foreign"} {
		r := await(t, client, name, func(r *certificatesv1.CertificateSigningRequest) bool {
			return len(r.Status.Conditions) > 0
		})
		if issued(r) {
			t.Errorf("the request %s got a certificate", name)
		}
	}
}

func TestSignersCheckRequests(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, func(o *server.Options) {
		o.Controllers = []string{"*", "-" + certificaterequests.ApprovalName}
	})
	client := kubernetes.NewForConfigOrDie(s.RESTConfig())
	node := pkix.Name{CommonName: "system:node:a", Organization: []string{"system:nodes"}}
	const (
		clientAuth = certificatesv1.UsageClientAuth
		serverAuth = certificatesv1.UsageServerAuth
		signature  = certificatesv1.UsageDigitalSignature
	)
	for _, test := range []struct {
		name, signer string
		request      x509.CertificateRequest
		usages       []certificatesv1.KeyUsage
		failure      string // none if empty
	}{
		{
			"client-of-server-auth", certificatesv1.KubeAPIServerClientSignerName,
			x509.CertificateRequest{Subject: pkix.Name{CommonName: "a"}},
			[]certificatesv1.KeyUsage{clientAuth, serverAuth}, "invalid usage",
		},
		{
			"client-without-auth", certificatesv1.KubeAPIServerClientSignerName,
			x509.CertificateRequest{Subject: pkix.Name{CommonName: "a"}},
			[]certificatesv1.KeyUsage{signature}, "missing required usage",
		},
		{
			"kubelet", certificatesv1.KubeAPIServerClientKubeletSignerName,
			x509.CertificateRequest{Subject: node}, []certificatesv1.KeyUsage{clientAuth, signature}, "",
		},
		{
			"kubelet-with-name", certificatesv1.KubeAPIServerClientKubeletSignerName,
			x509.CertificateRequest{Subject: node, DNSNames: []string{"a"}},
			[]certificatesv1.KeyUsage{clientAuth, signature}, "DNS subjectAltNames are not allowed",
		},
		{
			"kubelet-of-others", certificatesv1.KubeAPIServerClientKubeletSignerName,
			x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:a"}},
			[]certificatesv1.KeyUsage{clientAuth, signature}, "subject organization is not system:nodes",
		},
		{
			"serving", certificatesv1.KubeletServingSignerName,
			x509.CertificateRequest{Subject: node, DNSNames: []string{"a"}},
			[]certificatesv1.KeyUsage{serverAuth, signature}, "",
		},
		{
			"serving-without-name", certificatesv1.KubeletServingSignerName,
			x509.CertificateRequest{Subject: node},
			[]certificatesv1.KeyUsage{serverAuth, signature}, "DNS or IP subjectAltName is required",
		},
	} {
		a := ask(t, client, test.name, test.signer, test.request, nil, test.usages...)
		decide(t, client, a, certificatesv1.CertificateApproved)
		r := await(t, client, test.name, func(r *certificatesv1.CertificateSigningRequest) bool {
			return issued(r) || len(r.Status.Conditions) > 1
		})
		if test.failure == "" {
			if !issued(r) {
				t.Errorf("%s: not issued: %v", test.name, r.Status.Conditions)
			}
			continue
		}
		last := r.Status.Conditions[len(r.Status.Conditions)-1]
		if issued(r) || last.Type != certificatesv1.CertificateFailed ||
			last.Reason != "SignerValidationFailure" || !strings.Contains(last.Message, test.failure) {
			t.Errorf("%s: got %v, want the failure %q", test.name, last, test.failure)
		}
	}
}

func TestKubeletsAreApproved(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t)
	admin := kubernetes.NewForConfigOrDie(s.RESTConfig())
	as := func(user string, groups ...string) kubernetes.Interface {
		config := s.RESTConfig()
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
		return kubernetes.NewForConfigOrDie(config)
	}
	bind := func(group, role string) {
		t.Helper()
		_, err := admin.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: group + role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: group}},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		}, metav1.CreateOptions{})
		ok(t, err)
	}
	const prefix = "system:certificates.k8s.io:certificatesigningrequests:"
	bind("joining", prefix+"nodeclient")
	bind("joining", "system:node-bootstrapper")
	bind("system:nodes", prefix+"selfnodeclient")
	bind("system:nodes", "system:node-bootstrapper")
	bind("others", "system:node-bootstrapper")
	request := x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "system:node:a", Organization: []string{"system:nodes"}},
	}
	usages := []certificatesv1.KeyUsage{
		certificatesv1.UsageClientAuth, certificatesv1.UsageDigitalSignature,
	}
	const signer = certificatesv1.KubeAPIServerClientKubeletSignerName
	ask(t, as("someone", "others"), "unauthorized", signer, request, nil, usages...)
	ask(t, as("token", "joining"), "bootstrap", signer, request, nil, usages...)
	ask(t, as("system:node:a", "system:nodes"), "self", signer, request, nil, usages...)
	for name, message := range map[string]string{
		"bootstrap": "Auto approving kubelet client",
		"self":      "Auto approving self kubelet client",
	} {
		r := await(t, admin, name, issued)
		c := r.Status.Conditions[0]
		if c.Reason != "AutoApproved" || !strings.HasPrefix(c.Message, message) {
			t.Errorf("%s: the condition is %v", name, c)
		}
	}
	if r := await(t, admin, "unauthorized", func(*certificatesv1.CertificateSigningRequest) bool {
		return true
	}); len(r.Status.Conditions) > 0 {
		t.Errorf("the request of somebody else has %v", r.Status.Conditions)
	}
	// The permission may come later.
	bind("others", prefix+"nodeclient")
	await(t, admin, "unauthorized", issued)
}

// TestRestartWithApprovedRequest starts the signing controller only after a request was approved.
func TestRestartWithApprovedRequest(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, err := server.New(server.Options{
		DataDir: dir, Controllers: []string{"*", "-" + certificaterequests.SigningName},
	})
	ok(t, err)
	ok(t, first.Start(t.Context()))
	client := kubernetes.NewForConfigOrDie(first.RESTConfig())
	a := ask(t, client, "a", certificatesv1.KubeAPIServerClientSignerName,
		x509.CertificateRequest{Subject: pkix.Name{CommonName: "a"}}, nil, certificatesv1.UsageClientAuth)
	decide(t, client, a, certificatesv1.CertificateApproved)
	ok(t, first.Stop(t.Context()))
	second := servertest.Run(t, func(o *server.Options) { o.DataDir = dir })
	await(t, kubernetes.NewForConfigOrDie(second.RESTConfig()), "a", issued)
}

// TestRecreated replaces an approved request by one of the same name that nobody has approved, just
// before the certificate is written.
func TestRecreated(t *testing.T) {
	t.Parallel()
	s, client := workloadtest.Alone(t)
	authority, err := pki.New(pki.Options{})
	ok(t, err)
	requests := client.CertificatesV1().CertificateSigningRequests()
	request := func(name string) asked {
		return ask(t, client, name, certificatesv1.KubeAPIServerClientSignerName,
			x509.CertificateRequest{Subject: pkix.Name{CommonName: name}}, nil,
			certificatesv1.UsageClientAuth)
	}
	decide(t, client, request("a"), certificatesv1.CertificateApproved)
	racing, replaced := workloadtest.Meanwhile(t, s, http.MethodPut, "/a/status",
		func(ctx context.Context) error {
			if err := requests.Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
				return err
			}
			request("a")
			return nil
		})
	factory := informers.NewSharedInformerFactory(client, 0)
	workloadtest.Start(t, factory, certificaterequests.NewSigning(certificaterequests.Dependencies{
		Client: racing, Informers: factory, CA: authority.CA,
	}))
	<-replaced
	decide(t, client, request("b"), certificatesv1.CertificateApproved)
	await(t, client, "b", issued) // so that the controller has looked at a again
	r, err := requests.Get(t.Context(), "a", metav1.GetOptions{})
	ok(t, err)
	if issued(r) || len(r.Status.Conditions) > 0 {
		t.Errorf("the status of the request is %+v", r.Status)
	}
}
