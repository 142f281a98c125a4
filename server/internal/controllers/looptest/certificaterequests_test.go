package looptest

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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedcertificatesv1 "k8s.io/client-go/kubernetes/typed/certificates/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/keyutil"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/auth/pki"
	"github.com/kinproc/kinproc/server/internal/controllers/cluster/certificaterequests"
	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
	"github.com/kinproc/kinproc/server/servertest"
)

// certificateRequests are the requests of a control plane.
type certificateRequests struct {
	*testing.T
	typedcertificatesv1.CertificateSigningRequestInterface
}

func certificateRequestsOf(t *testing.T, client kubernetes.Interface) certificateRequests {
	return certificateRequests{t, client.CertificatesV1().CertificateSigningRequests()}
}

// certificateRequest is a request with the key for its certificate.
type certificateRequest struct {
	*certificatesv1.CertificateSigningRequest
	key []byte
}

// ask creates a request. The roles of who asks may not be in force yet.
func (c certificateRequests) ask(
	name, signer string, template x509.CertificateRequest, validity *int32,
	usages ...certificatesv1.KeyUsage,
) certificateRequest {
	c.Helper()
	key := workloadtest.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(c)
	der := workloadtest.Must(x509.CreateCertificateRequest(rand.Reader, &template, key))(c)
	encoded := workloadtest.Must(keyutil.MarshalPrivateKeyToPEM(key))(c)
	r := &certificatesv1.CertificateSigningRequest{
		// Without a field that its creator owns, a request has no managed fields.
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"test": name}},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:           pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName:        signer,
			Usages:            usages,
			ExpirationSeconds: validity,
		},
	}
	var made *certificatesv1.CertificateSigningRequest
	workloadtest.Until(c, func(ctx context.Context) string {
		var err error
		made, err = c.Create(ctx, r, metav1.CreateOptions{})
		if apierrors.IsForbidden(err) {
			return err.Error()
		}
		workloadtest.OK(c, err)
		return ""
	})
	return certificateRequest{made, encoded}
}

// decide adds a condition, as kubectl certificate approve and deny do.
func (c certificateRequests) decide(
	asked certificateRequest, decision certificatesv1.RequestConditionType,
) {
	c.Helper()
	r := workloadtest.Must(c.Get(c.Context(), asked.Name, metav1.GetOptions{}))(c)
	r.Status.Conditions = append(r.Status.Conditions,
		certificatesv1.CertificateSigningRequestCondition{
			Type: decision, Status: corev1.ConditionTrue, Reason: "Test",
			LastUpdateTime: metav1.Now(),
		})
	workloadtest.Must(c.UpdateApproval(c.Context(), r.Name, r, metav1.UpdateOptions{}))(c)
}

// await waits until a request is as wanted.
func (c certificateRequests) await(
	name string, wanted func(*certificatesv1.CertificateSigningRequest) bool,
) *certificatesv1.CertificateSigningRequest {
	c.Helper()
	return workloadtest.Await(c, "the request "+name,
		func(ctx context.Context) (*certificatesv1.CertificateSigningRequest, error) {
			return c.Get(ctx, name, metav1.GetOptions{})
		}, wanted)
}

func certificateIssued(r *certificatesv1.CertificateSigningRequest) bool {
	return len(r.Status.Certificate) > 0
}

func TestCertificateRequestsApproved(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t)
	c := certificateRequestsOf(t, workloadtest.Client(t, s))
	subject := x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "jane", Organization: []string{"dev"}},
	}
	a := c.ask("jane", certificatesv1.KubeAPIServerClientSignerName, subject,
		new(int32(3600)), certificatesv1.UsageClientAuth)
	denied := c.ask("denied", certificatesv1.KubeAPIServerClientSignerName, subject, nil,
		certificatesv1.UsageClientAuth)
	c.decide(denied, certificatesv1.CertificateDenied)
	foreign := c.ask("foreign", "example.com/signer", subject, nil,
		certificatesv1.UsageClientAuth)
	c.decide(foreign, certificatesv1.CertificateApproved)
	c.decide(a, certificatesv1.CertificateApproved)
	r := c.await("jane", certificateIssued)

	block, _ := pem.Decode(r.Status.Certificate)
	cert := workloadtest.Must(x509.ParseCertificate(block.Bytes))(t)
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
	workloadtest.OK(t, err)
	if user := self.Status.UserInfo; user.Username != "jane" || !slices.Contains(user.Groups, "dev") {
		t.Errorf("the certificate is that of %v", user)
	}
	for _, name := range []string{"denied", "foreign"} {
		r := c.await(name, func(r *certificatesv1.CertificateSigningRequest) bool {
			return len(r.Status.Conditions) > 0
		})
		if certificateIssued(r) {
			t.Errorf("the request %s got a certificate", name)
		}
	}
}

func TestCertificateRequestsChecked(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, func(o *server.Options) {
		o.Controllers = []string{"*", "-" + certificaterequests.ApprovalName}
	})
	c := certificateRequestsOf(t, workloadtest.Client(t, s))
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
		a := c.ask(test.name, test.signer, test.request, nil, test.usages...)
		c.decide(a, certificatesv1.CertificateApproved)
		r := c.await(test.name, func(r *certificatesv1.CertificateSigningRequest) bool {
			return certificateIssued(r) || len(r.Status.Conditions) > 1
		})
		if test.failure == "" {
			if !certificateIssued(r) {
				t.Errorf("%s: not issued: %v", test.name, r.Status.Conditions)
			}
			continue
		}
		last := r.Status.Conditions[len(r.Status.Conditions)-1]
		if certificateIssued(r) || last.Type != certificatesv1.CertificateFailed ||
			last.Reason != "SignerValidationFailure" || !strings.Contains(last.Message, test.failure) {
			t.Errorf("%s: got %v, want the failure %q", test.name, last, test.failure)
		}
	}
}

func TestCertificateRequestsOfKubelets(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t)
	admin := workloadtest.Client(t, s)
	c := certificateRequestsOf(t, admin)
	as := func(user string, groups ...string) certificateRequests {
		config := s.RESTConfig()
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
		return certificateRequestsOf(t, kubernetes.NewForConfigOrDie(config))
	}
	bind := func(group, role string) {
		t.Helper()
		_, err := admin.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: group + role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: group}},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		}, metav1.CreateOptions{})
		workloadtest.OK(t, err)
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
	as("someone", "others").ask("unauthorized", signer, request, nil, usages...)
	as("token", "joining").ask("bootstrap", signer, request, nil, usages...)
	as("system:node:a", "system:nodes").ask("self", signer, request, nil, usages...)
	for name, message := range map[string]string{
		"bootstrap": "Auto approving kubelet client",
		"self":      "Auto approving self kubelet client",
	} {
		condition := c.await(name, certificateIssued).Status.Conditions[0]
		if condition.Reason != "AutoApproved" || !strings.HasPrefix(condition.Message, message) {
			t.Errorf("%s: the condition is %v", name, condition)
		}
	}
	if r := c.await("unauthorized", func(*certificatesv1.CertificateSigningRequest) bool {
		return true
	}); len(r.Status.Conditions) > 0 {
		t.Errorf("the request of somebody else has %v", r.Status.Conditions)
	}
	// The permission may come later.
	bind("others", prefix+"nodeclient")
	c.await("unauthorized", certificateIssued)
}

// TestCertificateRequestsRestart starts the signing controller only after a request was approved.
func TestCertificateRequestsRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := servertest.Run(t, func(o *server.Options) {
		o.DataDir, o.Controllers = dir, []string{"*", "-" + certificaterequests.SigningName}
	})
	c := certificateRequestsOf(t, workloadtest.Client(t, first))
	a := c.ask("a", certificatesv1.KubeAPIServerClientSignerName,
		x509.CertificateRequest{Subject: pkix.Name{CommonName: "a"}}, nil, certificatesv1.UsageClientAuth)
	c.decide(a, certificatesv1.CertificateApproved)
	workloadtest.OK(t, first.Stop(t.Context()))
	second := servertest.Run(t, func(o *server.Options) { o.DataDir = dir })
	certificateRequestsOf(t, workloadtest.Client(t, second)).await("a", certificateIssued)
}

// TestCertificateRequestsRecreated replaces an approved request by one of the same name that nobody
// has approved, just before the certificate is written.
func TestCertificateRequestsRecreated(t *testing.T) {
	t.Parallel()
	s, client := workloadtest.Alone(t)
	authority, err := pki.New(pki.Options{})
	workloadtest.OK(t, err)
	c := certificateRequestsOf(t, client)
	request := func(name string) certificateRequest {
		return c.ask(name, certificatesv1.KubeAPIServerClientSignerName,
			x509.CertificateRequest{Subject: pkix.Name{CommonName: name}}, nil,
			certificatesv1.UsageClientAuth)
	}
	c.decide(request("a"), certificatesv1.CertificateApproved)
	racing, replaced := workloadtest.Meanwhile(t, s, http.MethodPut, "/a/status",
		func(ctx context.Context) error {
			if err := c.Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
				return err
			}
			request("a")
			return nil
		})
	d, _ := workloadtest.Dependencies(client)
	d.Client = racing
	workloadtest.Start(t, d, certificaterequests.Signing(authority.CA))
	<-replaced
	c.decide(request("b"), certificatesv1.CertificateApproved)
	c.await("b", certificateIssued) // so that the controller has looked at a again
	r, err := c.Get(t.Context(), "a", metav1.GetOptions{})
	workloadtest.OK(t, err)
	if certificateIssued(r) || len(r.Status.Conditions) > 0 {
		t.Errorf("the status of the request is %+v", r.Status)
	}
}
