package certificates

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kinproc/kinproc/chain/kind"
	"github.com/kinproc/kinproc/chain/kind/kindtest"
)

type podRequest = certificatesv1beta1.PodCertificateRequest

func podCertificateRequests(a authorizer.UnconditionalAuthorizer) *kind.Kind[*podRequest] {
	return PodCertificateRequests(a)
}

// stubFor returns a PKCS#10 request that holds only the public key.
func stubFor(t *testing.T, key crypto.Signer) []byte {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func ecdsaKey(t *testing.T, curve elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func pkix(t *testing.T, key crypto.PublicKey) []byte {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func validPodRequest(stub []byte) *podRequest {
	r := &podRequest{ObjectMeta: metav1.ObjectMeta{Name: "r", Namespace: "n"}}
	r.Spec = certificatesv1beta1.PodCertificateRequestSpec{
		SignerName:         "example.com/a",
		PodName:            "p",
		PodUID:             "1",
		ServiceAccountName: "s",
		ServiceAccountUID:  "2",
		NodeName:           "n",
		NodeUID:            "3",
		StubPKCS10Request:  stub,
	}
	return r
}

func TestPodCertificateRequests(t *testing.T) {
	t.Parallel()
	k := podCertificateRequests(authorizerfactory.NewAlwaysAllowAuthorizer())
	stub := stubFor(t, ecdsaKey(t, elliptic.P256()))
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	elliptical := ecdsaKey(t, elliptic.P384())
	hash := sha256.Sum256([]byte("1"))
	signed, err := ecdsa.SignASN1(rand.Reader, elliptical, hash[:])
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		change func(s *certificatesv1beta1.PodCertificateRequestSpec)
		want   []string
	}{
		{"valid", func(*certificatesv1beta1.PodCertificateRequestSpec) {}, nil},
		{"nobody", func(s *certificatesv1beta1.PodCertificateRequestSpec) {
			s.PodName, s.ServiceAccountUID, s.NodeName = "", "", "A"
		}, []string{"spec.nodeName Invalid", "spec.podName Invalid", "spec.serviceAccountUID Invalid"}},
		{"long UID", func(s *certificatesv1beta1.PodCertificateRequestSpec) {
			s.NodeUID = "123456789" + "-" + s.NodeUID + "x"
		}, nil},
		{"brief", func(s *certificatesv1beta1.PodCertificateRequestSpec) {
			s.MaxExpirationSeconds = new(int32(3599))
		}, []string{"spec.maxExpirationSeconds Invalid"}},
		{"91 days", func(s *certificatesv1beta1.PodCertificateRequestSpec) {
			s.MaxExpirationSeconds = new(int32(91 * 86400))
		}, nil},
		{"two days of Kubernetes", func(s *certificatesv1beta1.PodCertificateRequestSpec) {
			s.SignerName, s.MaxExpirationSeconds = "kubernetes.io/a", new(int32(2*86400))
		}, []string{"spec.maxExpirationSeconds Invalid"}},
		{"annotations", func(s *certificatesv1beta1.PodCertificateRequestSpec) {
			s.UnverifiedUserAnnotations = map[string]string{"example.com/A": "anything"}
		}, nil},
		{"annotation without a domain", func(s *certificatesv1beta1.PodCertificateRequestSpec) {
			s.UnverifiedUserAnnotations = map[string]string{"a": ""}
		}, []string{"spec.unverifiedUserAnnotations Invalid"}},
		{"no key", func(s *certificatesv1beta1.PodCertificateRequestSpec) {
			s.StubPKCS10Request = nil
		}, []string{"spec Invalid"}},
		{"no request", func(s *certificatesv1beta1.PodCertificateRequestSpec) {
			s.StubPKCS10Request = []byte("x")
		}, []string{"spec.stubPKCS10Request Invalid"}},
		{"changed request", func(s *certificatesv1beta1.PodCertificateRequestSpec) {
			s.StubPKCS10Request = slices.Clone(s.StubPKCS10Request)
			s.StubPKCS10Request[len(s.StubPKCS10Request)-1] ^= 1
		}, []string{"spec.stubPKCS10Request Invalid"}},
		{"weak curve", func(s *certificatesv1beta1.PodCertificateRequestSpec) {
			s.StubPKCS10Request = stubFor(t, ecdsaKey(t, elliptic.P224()))
		}, []string{"spec.stubPKCS10Request Invalid"}},
		{"long request", func(s *certificatesv1beta1.PodCertificateRequestSpec) {
			s.StubPKCS10Request = make([]byte, maxKeyMaterial+1)
		}, []string{"spec.stubPKCS10Request TooLong"}},
		{"proof with Ed25519", func(s *certificatesv1beta1.PodCertificateRequestSpec) {
			s.StubPKCS10Request, s.PKIXPublicKey, s.ProofOfPossession = nil, pkix(t, public),
				ed25519.Sign(private, []byte("1"))
		}, nil},
		{"proof with ECDSA", func(s *certificatesv1beta1.PodCertificateRequestSpec) {
			s.StubPKCS10Request, s.PKIXPublicKey, s.ProofOfPossession = nil,
				pkix(t, elliptical.Public()), signed
		}, nil},
		{"proof for another pod", func(s *certificatesv1beta1.PodCertificateRequestSpec) {
			s.StubPKCS10Request, s.PKIXPublicKey, s.ProofOfPossession = nil, pkix(t, public),
				ed25519.Sign(private, []byte("2"))
		}, []string{"spec.proofOfPossession Invalid"}},
	} {
		r := validPodRequest(stub)
		k.Default(r)
		c.change(&r.Spec)
		if got := kindtest.Causes(k.Validate(t.Context(), r)); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
		if c.name == "valid" {
			continue
		}
		before := validPodRequest(stub)
		k.Default(before)
		if got := kindtest.Causes(k.ValidateUpdate(t.Context(), r, before)); !slices.Equal(got,
			[]string{"spec Invalid"}) {
			t.Errorf("%s: update: got %q", c.name, got)
		}
	}
}

func TestPodCertificateStatus(t *testing.T) {
	t.Parallel()
	key := ecdsaKey(t, elliptic.P256())
	open := validPodRequest(stubFor(t, key))
	begin := time.Now().Truncate(time.Second)
	issue := func(
		public crypto.PublicKey, lifetime time.Duration,
	) certificatesv1beta1.PodCertificateRequestStatus {
		template := &x509.Certificate{
			SerialNumber: big.NewInt(1),
			NotBefore:    begin,
			NotAfter:     begin.Add(lifetime),
		}
		der, err := x509.CreateCertificate(rand.Reader, template, template, public, key)
		if err != nil {
			t.Fatal(err)
		}
		return certificatesv1beta1.PodCertificateRequestStatus{
			Conditions: []metav1.Condition{
				{Type: "Issued", Status: "True", Reason: "R", LastTransitionTime: metav1.Now()},
			},
			CertificateChain: string(pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: der})),
			NotBefore:        &metav1.Time{Time: begin}, NotAfter: &metav1.Time{Time: template.NotAfter},
			BeginRefreshAt: &metav1.Time{Time: begin.Add(20 * time.Minute)},
		}
	}
	good := issue(key.Public(), 2*time.Hour)
	issued := open.DeepCopy()
	issued.Status = good
	for _, c := range []struct {
		name   string
		old    *podRequest
		status certificatesv1beta1.PodCertificateRequestStatus
		change func(s *certificatesv1beta1.PodCertificateRequestStatus)
		want   []string
	}{
		{"issued", open, good, nil, nil},
		{"chain", open, good, func(s *certificatesv1beta1.PodCertificateRequestStatus) {
			s.CertificateChain += "text\n" + s.CertificateChain
		}, nil},
		{
			"denied", open, certificatesv1beta1.PodCertificateRequestStatus{Conditions: good.Conditions},
			func(s *certificatesv1beta1.PodCertificateRequestStatus) {
				s.Conditions[0].Type = "Denied"
			}, nil,
		},
		{"denied with a certificate", open, good, func(
			s *certificatesv1beta1.PodCertificateRequestStatus,
		) {
			s.Conditions[0].Type = "Denied"
		}, []string{"status Invalid"}},
		{"not decided", open, good, func(s *certificatesv1beta1.PodCertificateRequestStatus) {
			s.Conditions = nil
		}, []string{"status Invalid"}},
		{"false", open, good, func(s *certificatesv1beta1.PodCertificateRequestStatus) {
			s.Conditions[0].Status = "False"
		}, []string{"status.conditions.[0].status NotSupported"}},
		{"anything", open, good, func(s *certificatesv1beta1.PodCertificateRequestStatus) {
			s.Conditions[0].Type = "Ready"
		}, []string{"status.conditions.[0].type NotSupported"}},
		{"twice", open, good, func(s *certificatesv1beta1.PodCertificateRequestStatus) {
			s.Conditions = append(s.Conditions, s.Conditions[0])
			s.Conditions[1].Type = "Failed"
		}, []string{"status.conditions.[1].type Invalid"}},
		{"after all", issued, certificatesv1beta1.PodCertificateRequestStatus{}, nil, []string{
			"status Invalid",
		}},
		{"again the same", issued, good, nil, nil},
		{"no times", open, good, func(s *certificatesv1beta1.PodCertificateRequestStatus) {
			s.NotAfter, s.BeginRefreshAt = nil, nil
		},
			[]string{"status.beginRefreshAt Required", "status.notAfter Required"}},
		{"no certificate", open, good, func(s *certificatesv1beta1.PodCertificateRequestStatus) {
			s.CertificateChain = "x"
		}, []string{"status.certificateChain Invalid"}},
		{"another key", open, issue(ecdsaKey(t, elliptic.P256()).Public(), 2*time.Hour), nil, []string{
			"status.certificateChain Invalid",
		}},
		{"half an hour", open, issue(key.Public(), time.Hour/2), nil, []string{
			"status.certificateChain Invalid",
		}},
		{"two days", open, issue(key.Public(), 48*time.Hour), nil, []string{
			"status.certificateChain Invalid",
		}},
		{"another beginning", open, good, func(s *certificatesv1beta1.PodCertificateRequestStatus) {
			s.NotBefore = &metav1.Time{Time: begin.Add(time.Minute)}
		}, []string{"status.notBefore Invalid"}},
		{"early refresh", open, good, func(s *certificatesv1beta1.PodCertificateRequestStatus) {
			s.BeginRefreshAt = s.NotBefore
		}, []string{"status.beginRefreshAt Invalid"}},
		{"late refresh", open, good, func(s *certificatesv1beta1.PodCertificateRequestStatus) {
			s.BeginRefreshAt = s.NotAfter
		}, []string{"status.beginRefreshAt Invalid"}},
	} {
		r, old := c.old.DeepCopy(), c.old.DeepCopy()
		k := podCertificateRequests(authorizerfactory.NewAlwaysAllowAuthorizer())
		k.Default(r)
		k.Default(old)
		c.status.DeepCopyInto(&r.Status)
		if c.change != nil {
			c.change(&r.Status)
		}
		ctx := request.WithUser(t.Context(), &user.DefaultInfo{Name: "signer"})
		if got := kindtest.Causes(k.Status.Validate(ctx, r, old)); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
		if len(c.want) > 0 || equality.Semantic.DeepEqual(r.Status, old.Status) {
			continue
		}
		k = podCertificateRequests(authorizerfactory.NewAlwaysDenyAuthorizer())
		if got := kindtest.Causes(k.Status.Validate(ctx, r, old)); !slices.Equal(got,
			[]string{"spec.signerName Forbidden"}) {
			t.Errorf("%s by a user who may not sign: got %q", c.name, got)
		}
	}
}

func TestPodCertificateRequestVersions(t *testing.T) {
	t.Parallel()
	old := validPodRequest([]byte("stub"))
	old.Spec.PKIXPublicKey = []byte("key")
	old.Status.CertificateChain = "chain"
	var v1 certificatesv1.PodCertificateRequest
	if err := podCertificateRequestToV1(old, &v1); err != nil {
		t.Fatal(err)
	}
	var back podRequest
	if err := podCertificateRequestFromV1(&v1, &back); err != nil {
		t.Fatal(err)
	}
	old.Spec.PKIXPublicKey = nil
	if !equality.Semantic.DeepEqual(old, &back) || strings.Contains(v1.String(), "key") {
		t.Errorf("round trip returned %+v by way of %+v", back, v1)
	}
}
