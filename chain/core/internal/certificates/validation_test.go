package certificates

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"slices"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/utils/ptr"

	"github.com/kinproc/kinproc/chain/kind/kindtest"
)

type csr = certificatesv1.CertificateSigningRequest

// material returns a certificate signing request and a certificate, both in PEM.
func material(t *testing.T, authority bool) (signingRequest, issued []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		IsCA:                  authority,
		BasicConstraintsValid: true,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: requestBlock, Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: cert})
}

func condition(
	t certificatesv1.RequestConditionType, status corev1.ConditionStatus,
) certificatesv1.CertificateSigningRequestCondition {
	return certificatesv1.CertificateSigningRequestCondition{
		Type:               t,
		Status:             status,
		LastUpdateTime:     metav1.Unix(1, 0),
		LastTransitionTime: metav1.Unix(1, 0),
	}
}

func TestCertificateSigningRequests(t *testing.T) {
	t.Parallel()
	k := CertificateSigningRequests()
	signingRequest, issued := material(t, false)
	der, _ := pem.Decode(signingRequest)
	der.Bytes[len(der.Bytes)-1]++
	forged := pem.EncodeToMemory(der)
	valid := &csr{
		ObjectMeta: metav1.ObjectMeta{Name: "x"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    signingRequest,
			SignerName: "example.com/a",
			Usages:     []certificatesv1.KeyUsage{"client auth"},
		},
	}
	approval := k.Subresources[0]
	decided := valid.DeepCopy()
	decided.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{
		condition("Approved", "True"),
	}
	delivered := decided.DeepCopy()
	delivered.Status.Certificate = issued
	odd := decided.DeepCopy()
	odd.Status.Certificate = []byte("odd")

	for _, test := range []struct {
		name   string
		old    *csr // nil to create
		how    string
		change func(r *csr)
		want   []string
	}{
		{"valid", nil, "", func(*csr) {}, nil},
		{"signer of one segment", nil, "", func(r *csr) {
			r.Spec.SignerName = "a/b"
		}, []string{"spec.signerName Invalid"}},
		{"signer without path", nil, "", func(r *csr) {
			r.Spec.SignerName = "example.com"
		}, []string{"spec.signerName Invalid"}},
		{"long signer", nil, "", func(r *csr) {
			r.Spec.SignerName = "a.b/" + strings.Repeat("a.", 300) + "a"
		}, []string{"spec.signerName TooLong"}},
		{"brief", nil, "", func(r *csr) {
			r.Spec.ExpirationSeconds = ptr.To[int32](599)
		}, []string{"spec.expirationSeconds Invalid"}},
		{"forged", nil, "", func(r *csr) { r.Spec.Request = forged }, []string{"spec.request Invalid"}},
		{"not a request", nil, "", func(r *csr) {
			r.Spec.Request = issued
		}, []string{"spec.request Invalid"}},

		{"approve", valid, "approval", func(r *csr) { r.Status = decided.Status }, nil},
		{"approve and deny", decided, "approval", func(r *csr) {
			r.Status.Conditions = append(r.Status.Conditions, condition("Denied", "True"))
		}, []string{"status.conditions Invalid"}},
		{"take approval back", decided, "approval", func(r *csr) {
			r.Status.Conditions = nil
		}, []string{"status.conditions Forbidden"}},
		{"approve twice", valid, "approval", func(r *csr) {
			r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{
				condition("Approved", "True"), condition("Approved", ""), condition("", "x"),
			}
		}, []string{
			"status.conditions[1].status Required", "status.conditions[1].type Duplicate",
			"status.conditions[2].status NotSupported", "status.conditions[2].type Required",
		}},
		{"a certificate through approval", valid, "approval", func(r *csr) {
			r.Status.Certificate = []byte("ignored")
		}, nil},

		{"deliver", decided, "status", func(r *csr) { r.Status.Certificate = issued }, nil},
		{"deliver again", delivered, "status", func(r *csr) {
			r.Status.Certificate = slices.Concat(issued, issued)
		}, []string{"status.certificate Forbidden"}},
		{"replace what is not a certificate", odd, "status", func(r *csr) {
			r.Status.Certificate = []byte("odder")
		}, []string{"status.certificate Forbidden"}},
		{"deliver a request", decided, "status", func(r *csr) {
			r.Status.Certificate = signingRequest
		}, []string{"status.certificate Invalid"}},
		{"approve through status", valid, "status", func(r *csr) {
			r.Status = decided.Status
		}, []string{"status.conditions Forbidden"}},
		{"reword approval through status", decided, "status", func(r *csr) {
			r.Status.Conditions[0].Message = "m"
		}, nil},
		{"fail", decided, "status", func(r *csr) {
			r.Status.Conditions = append(r.Status.Conditions, condition("Failed", "True"))
		}, nil},
	} {
		r := valid.DeepCopy()
		var errs field.ErrorList
		if test.old == nil {
			test.change(r)
			errs = k.Validate(t.Context(), r)
		} else {
			r, old := test.old.DeepCopy(), test.old.DeepCopy()
			test.change(r)
			if test.how == "status" {
				k.Status.Prepare(t.Context(), r, old)
				errs = k.Status.Validate(t.Context(), r, old)
			} else {
				approval.Prepare(t.Context(), r, old)
				errs = approval.Validate(t.Context(), r, old)
			}
			for _, c := range r.Status.Conditions {
				if len(errs) == 0 && c.Message != "" {
					t.Errorf("%s: the decision's message was changed", test.name)
				}
			}
		}
		if got := kindtest.Causes(errs); !slices.Equal(got, test.want) {
			t.Errorf("%s:\n got %q\nwant %q", test.name, got, test.want)
		}
	}
}

func TestRequestorIsStamped(t *testing.T) {
	t.Parallel()
	r := &csr{Spec: certificatesv1.CertificateSigningRequestSpec{
		Username: "root",
		Groups:   []string{"system:masters"},
	}}
	u := &user.DefaultInfo{
		Name:   "alice",
		UID:    "1",
		Groups: []string{"devs"},
		Extra:  map[string][]string{"k": {"v"}},
	}
	stampRequestor(request.WithUser(t.Context(), u), r)
	if r.Spec.Username != "alice" || r.Spec.UID != "1" || !slices.Equal(r.Spec.Groups, u.Groups) ||
		!slices.Equal(r.Spec.Extra["k"], []string{"v"}) {
		t.Errorf("got %+v", r.Spec)
	}
}

func TestClusterTrustBundles(t *testing.T) {
	t.Parallel()
	k := ClusterTrustBundles()
	_, issued := material(t, true)
	_, leaf := material(t, false)
	for _, test := range []struct {
		name, signer, bundle string
		want                 []string
	}{
		{"a", "", string(issued), nil},
		{"example.com:a:b", "example.com/a", "# text\n" + string(issued), nil},
		{"b", "example.com/a", string(issued), []string{"metadata.name Invalid"}},
		{"a:b", "", string(issued), []string{"metadata.name Invalid"}},
		{"", "", string(issued), nil}, // the engine reports a missing name
		{"a", "", string(issued) + string(issued), []string{"spec.trustBundle Invalid"}},
		{"a", "", string(leaf), []string{"spec.trustBundle Invalid"}},
		{"a", "", "", []string{"spec.trustBundle Invalid"}},
		{"a", "", strings.Repeat("a", maxTrustBundle+1), []string{"spec.trustBundle TooLong"}},
	} {
		b := &certificatesv1beta1.ClusterTrustBundle{ObjectMeta: metav1.ObjectMeta{Name: test.name}}
		b.Spec.SignerName, b.Spec.TrustBundle = test.signer, test.bundle
		if got := kindtest.Causes(k.Validate(t.Context(), b)); !slices.Equal(got, test.want) {
			t.Errorf("%s of %q: got %q, want %q", test.name, test.signer, got, test.want)
		}
	}
	old := &certificatesv1beta1.ClusterTrustBundle{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	old.Spec.TrustBundle = string(leaf)
	if got := kindtest.Causes(k.ValidateUpdate(t.Context(), old.DeepCopy(), old)); got != nil {
		t.Errorf("an unchanged bundle: got %q", got)
	}
}
