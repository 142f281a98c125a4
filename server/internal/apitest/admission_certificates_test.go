package apitest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// newCertificateRequest returns a PEM-encoded certificate signing request.
func newCertificateRequest(t *testing.T, name string, groups ...string) []byte {
	t.Helper()
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	der := must(x509.CreateCertificateRequest(rand.Reader,
		&x509.CertificateRequest{Subject: pkix.Name{CommonName: name, Organization: groups}}, key))(t)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

// TestAdmissionSigners approves and signs as users who have the verb "approve" or "sign" on the
// resource "signers", for some signers.
func TestAdmissionSigners(t *testing.T) {
	t.Parallel()
	s, admin := quiet(t)
	ctx := t.Context()
	group := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "signers"}
	may := func(subject rbacv1.Subject, resource, verb string, names ...string) {
		allow(t, admin, subject, rbacv1.PolicyRule{
			APIGroups:     []string{certificatesv1.GroupName},
			Resources:     []string{resource},
			Verbs:         []string{verb},
			ResourceNames: names,
		})
	}
	may(group, "certificatesigningrequests/approval", "update")
	may(group, "certificatesigningrequests/status", "update")
	user := func(name string) rbacv1.Subject {
		return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "User", Name: name}
	}
	may(user("one"), "signers", "approve", "example.com/a")
	may(user("one"), "signers", "sign", "example.com/a")
	may(user("domain"), "signers", "approve", "example.com/*")
	may(user("domain"), "signers", "sign", "example.com/*")
	may(user("wrong"), "signers", "approve", "example.com/b")
	may(user("wrong"), "signers", "sign", "example.org/*")

	request := func(signer string) *certificatesv1.CertificateSigningRequest {
		return must(admin.CertificatesV1().CertificateSigningRequests().Create(ctx,
			&certificatesv1.CertificateSigningRequest{
				ObjectMeta: metav1.ObjectMeta{GenerateName: "r-"},
				Spec: certificatesv1.CertificateSigningRequestSpec{
					SignerName: signer,
					Request:    newCertificateRequest(t, "jane"),
					Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth},
				},
			}, metav1.CreateOptions{}))(t)
	}
	approve := func(client kubernetes.Interface) error {
		r := request("example.com/a")
		r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{
			{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test"},
		}
		_, err := client.CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, r.Name, r,
			metav1.UpdateOptions{})
		return err
	}
	fail := func(client kubernetes.Interface) error {
		r := request("example.com/a")
		r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{
			{Type: certificatesv1.CertificateFailed, Status: corev1.ConditionTrue, Reason: "Test"},
		}
		_, err := client.CertificatesV1().CertificateSigningRequests().UpdateStatus(ctx, r,
			metav1.UpdateOptions{})
		return err
	}
	// changes neither the certificate nor a condition
	relabel := func(client kubernetes.Interface) error {
		_, err := client.CertificatesV1().CertificateSigningRequests().UpdateStatus(ctx,
			request("example.com/a"), metav1.UpdateOptions{})
		return err
	}
	for name, allowed := range map[string]bool{"one": true, "domain": true, "wrong": false} {
		client := as(t, s, name, "signers")
		if allowed {
			eventually(t, name+" approves", func() error { return approve(client) })
			eventually(t, name+" signs", func() error { return fail(client) })
			continue
		}
		eventually(t, name+" changes nothing", func() error { return relabel(client) })
		checkRefused(t, name+" approves", approve(client), true)
		checkRefused(t, name+" signs", fail(client), true)
	}
}

func TestAdmissionCertificateSubjectRestriction(t *testing.T) {
	t.Parallel()
	p := newPlugin(t, "CertificateSubjectRestriction", nil)
	for name, c := range map[string]struct {
		signer  string
		groups  []string
		refused bool
	}{
		"no group":   {certificatesv1.KubeAPIServerClientSignerName, nil, false},
		"some group": {certificatesv1.KubeAPIServerClientSignerName, []string{"a", "b"}, false},
		"masters": {
			certificatesv1.KubeAPIServerClientSignerName, []string{"a", "system:masters"}, true,
		},
		"another signer": {"example.com/a", []string{"system:masters"}, false},
		"kubelet signer": {
			certificatesv1.KubeAPIServerClientKubeletSignerName, []string{"system:masters"}, false,
		},
	} {
		request := &certificatesv1.CertificateSigningRequest{
			Spec: certificatesv1.CertificateSigningRequestSpec{
				SignerName: c.signer, Request: newCertificateRequest(t, "jane", c.groups...),
			},
		}
		checkRefused(t, name,
			ask(t, p, "certificatesigningrequests.certificates.k8s.io", request, nil), c.refused)
		checkRefused(t, name+", on update",
			ask(t, p, "certificatesigningrequests.certificates.k8s.io", request, request), false)
	}
	garbage := &certificatesv1.CertificateSigningRequest{
		Spec: certificatesv1.CertificateSigningRequestSpec{
			SignerName: certificatesv1.KubeAPIServerClientSignerName, Request: []byte("x"),
		},
	}
	checkRefused(t, "garbage",
		ask(t, p, "certificatesigningrequests.certificates.k8s.io", garbage, nil), true)
}

func TestAdmissionClusterTrustBundleAttest(t *testing.T) {
	t.Parallel()
	s, admin := quiet(t)
	ctx := t.Context()
	group := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "bundlers"}
	allow(t, admin, group, rbacv1.PolicyRule{
		APIGroups: []string{certificatesv1.GroupName},
		Resources: []string{"clustertrustbundles"},
		Verbs:     []string{"*"},
	})
	allow(t, admin, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "User", Name: "attester"},
		rbacv1.PolicyRule{
			APIGroups:     []string{certificatesv1.GroupName},
			Resources:     []string{"signers"},
			Verbs:         []string{"attest"},
			ResourceNames: []string{"example.com/*"},
		})
	bundle := func(name, signer string) *certificatesv1.ClusterTrustBundle {
		ca := s.RESTConfig().TLSClientConfig.CAData
		return &certificatesv1.ClusterTrustBundle{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       certificatesv1.ClusterTrustBundleSpec{SignerName: signer, TrustBundle: string(ca)},
		}
	}
	create := func(client kubernetes.Interface, name, signer string) error {
		_, err := client.CertificatesV1().ClusterTrustBundles().Create(ctx, bundle(name, signer),
			metav1.CreateOptions{})
		return err
	}
	other, attester := as(t, s, "other", "bundlers"), as(t, s, "attester", "bundlers")
	eventually(t, "no signer", func() error { return create(other, "nobodys", "") })
	checkRefused(t, "signer", create(other, "example.com:a:x", "example.com/a"), true)
	eventually(t, "signer, permitted", func() error {
		return create(attester, "example.com:a:x", "example.com/a")
	})
	kept := must(other.CertificatesV1().ClusterTrustBundles().Get(ctx, "example.com:a:x",
		metav1.GetOptions{}))(t)
	kept.Finalizers = []string{"example.com/x"}
	_, err := other.CertificatesV1().ClusterTrustBundles().Update(ctx, kept, metav1.UpdateOptions{})
	checkRefused(t, "finalizers only", err, false)
	changed := must(other.CertificatesV1().ClusterTrustBundles().Get(ctx, "example.com:a:x",
		metav1.GetOptions{}))(t)
	changed.Labels = map[string]string{"a": "b"}
	_, err = other.CertificatesV1().ClusterTrustBundles().Update(ctx, changed, metav1.UpdateOptions{})
	checkRefused(t, "labels", err, true)
}
