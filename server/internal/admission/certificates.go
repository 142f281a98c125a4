package admission

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1alpha1 "k8s.io/api/certificates/v1alpha1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kinproc/kinproc/chain/core"
)

var signingRequests = certificatesv1.Resource("certificatesigningrequests")

// mayUseSigner refuses users who have no permission for a signer, or for all of the signer's domain.
func (p *asker) mayUseSigner(ctx context.Context, a admission.Attributes, verb, signer string) error {
	if core.MayUseSigner(ctx, p.authorizer, a.GetUserInfo(), verb, signer) {
		return nil
	}
	return forbid(a, "user %q may not %s for the signer %q", a.GetUserInfo().GetName(), verb, signer)
}

// certificateApproval (CertificateApproval) lets those approve or deny a request who may "approve" for its signer.
type certificateApproval struct {
	*admission.Handler
	asker
}

func newCertificateApproval() admission.Interface {
	return &certificateApproval{Handler: on(admission.Update)}
}

func (p *certificateApproval) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if !is(a, signingRequests, "approval") {
		return nil
	}
	request, err := cast[*certificatesv1.CertificateSigningRequest](a.GetObject())
	if err != nil {
		return err
	}
	return p.mayUseSigner(ctx, a, "approve", request.Spec.SignerName)
}

// certificateSigning (CertificateSigning) lets those issue a certificate who may "sign" for the request's signer.
type certificateSigning struct {
	*admission.Handler
	asker
}

func newCertificateSigning() admission.Interface {
	return &certificateSigning{Handler: on(admission.Update)}
}

func (p *certificateSigning) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if !is(a, signingRequests, "status") {
		return nil
	}
	request, err := cast[*certificatesv1.CertificateSigningRequest](a.GetObject())
	if err != nil {
		return err
	}
	old, err := cast[*certificatesv1.CertificateSigningRequest](a.GetOldObject())
	if err != nil {
		return err
	}
	if bytes.Equal(old.Status.Certificate, request.Status.Certificate) && apiequality.Semantic.DeepEqual(old.Status.Conditions, request.Status.Conditions) {
		return nil
	}
	return p.mayUseSigner(ctx, a, "sign", old.Spec.SignerName)
}

// certificateSubject (CertificateSubjectRestriction) refuses requests for client certificates of system:masters, whom nothing restrains.
type certificateSubject struct{ *admission.Handler }

func newCertificateSubject() admission.Interface { return certificateSubject{on(admission.Create)} }

func (certificateSubject) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	request, ok, err := objectOf[*certificatesv1.CertificateSigningRequest](a, signingRequests)
	if !ok || request.Spec.SignerName != certificatesv1.KubeAPIServerClientSignerName {
		return err
	}
	parsed, err := parseRequest(request.Spec.Request)
	if err != nil {
		return forbid(a, "spec.request: %w", err)
	}
	if slices.Contains(parsed.Subject.Organization, user.SystemPrivilegedGroup) {
		return forbid(a, "no certificates of the group (organization) %s are issued by %s", user.SystemPrivilegedGroup, request.Spec.SignerName)
	}
	return nil
}

// parseRequest reads a certificate signing request in PEM.
func parseRequest(data []byte) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(data)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, errors.New("not a certificate request in PEM")
	}
	return x509.ParseCertificateRequest(block.Bytes)
}

// trustBundleAttest (ClusterTrustBundleAttest) lets those publish a signer's certificates who may "attest" for it.
type trustBundleAttest struct {
	*admission.Handler
	asker
}

func newTrustBundleAttest() admission.Interface {
	return &trustBundleAttest{Handler: on(admission.Create, admission.Update)}
}

func (p *trustBundleAttest) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if !is(a, certificatesv1.Resource("clustertrustbundles"), "") {
		return nil
	}
	signer, err := signerOf(a.GetObject())
	if err != nil || signer == "" || sameButMetadata(a) {
		return err
	}
	return p.mayUseSigner(ctx, a, "attest", signer)
}

// sameButMetadata reports whether an update changes nothing but owners and finalizers, as the garbage collector and storage migrations do.
func sameButMetadata(a admission.Attributes) bool {
	if a.GetOperation() != admission.Update || a.GetOldObject() == nil {
		return false
	}
	obj := a.GetObject().DeepCopyObject()
	m, err := meta.Accessor(obj)
	if err != nil {
		return false
	}
	old, err := meta.Accessor(a.GetOldObject())
	if err != nil {
		return false
	}
	m.SetOwnerReferences(old.GetOwnerReferences())
	m.SetFinalizers(old.GetFinalizers())
	m.SetManagedFields(old.GetManagedFields())
	return apiequality.Semantic.DeepEqual(obj, a.GetOldObject())
}

func signerOf(bundle runtime.Object) (string, error) {
	switch b := bundle.(type) {
	case *certificatesv1.ClusterTrustBundle:
		return b.Spec.SignerName, nil
	case *certificatesv1beta1.ClusterTrustBundle:
		return b.Spec.SignerName, nil
	case *certificatesv1alpha1.ClusterTrustBundle:
		return b.Spec.SignerName, nil
	}
	return "", fmt.Errorf("a %T is no ClusterTrustBundle", bundle)
}
