package admission

import (
	"bytes"
	"context"
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
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kinproc/kinproc/chain/core"
	"github.com/kinproc/kinproc/server/internal/admission/plugin"
)

var signingRequests = certificatesv1.Resource("certificatesigningrequests")

// mayUseSigner returns a Forbidden error unless the user has permission for the verb on the signer
// or on all signers of its domain.
func mayUseSigner(
	ctx context.Context, authz authorizer.UnconditionalAuthorizer, a admission.Attributes,
	verb, signer string,
) error {
	if core.MayUseSigner(ctx, authz, a.GetUserInfo(), verb, signer) {
		return nil
	}
	return plugin.Forbid(a, "user %q is not permitted to %s for signer %q",
		a.GetUserInfo().GetName(), verb, signer)
}

// certificateApproval (CertificateApproval) requires permission to approve for the request's signer
// in order to approve or deny a certificate signing request.
type certificateApproval struct {
	*admission.Handler
	plugin.WantsAuthorizer
}

func newCertificateApproval() admission.Interface {
	return &certificateApproval{Handler: admission.NewHandler(admission.Update)}
}

func (p *certificateApproval) Validate(
	ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces,
) error {
	if !plugin.Is(a, signingRequests, "approval") {
		return nil
	}
	request, err := plugin.Cast[*certificatesv1.CertificateSigningRequest](a.GetObject())
	if err != nil {
		return err
	}
	return mayUseSigner(ctx, p.Authorizer, a, "approve", request.Spec.SignerName)
}

// certificateSigning (CertificateSigning) requires permission to sign for the request's signer in
// order to change the certificate or the conditions in the request's status.
type certificateSigning struct {
	*admission.Handler
	plugin.WantsAuthorizer
}

func newCertificateSigning() admission.Interface {
	return &certificateSigning{Handler: admission.NewHandler(admission.Update)}
}

func (p *certificateSigning) Validate(
	ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces,
) error {
	if !plugin.Is(a, signingRequests, "status") {
		return nil
	}
	request, err := plugin.Cast[*certificatesv1.CertificateSigningRequest](a.GetObject())
	if err != nil {
		return err
	}
	old, err := plugin.Cast[*certificatesv1.CertificateSigningRequest](a.GetOldObject())
	if err != nil {
		return err
	}
	if bytes.Equal(old.Status.Certificate, request.Status.Certificate) &&
		apiequality.Semantic.DeepEqual(old.Status.Conditions, request.Status.Conditions) {
		return nil
	}
	return mayUseSigner(ctx, p.Authorizer, a, "sign", old.Spec.SignerName)
}

// certificateSubject (CertificateSubjectRestriction) rejects requests for API server client
// certificates in the group system:masters, because authorization does not apply to that group.
type certificateSubject struct{ *admission.Handler }

func newCertificateSubject() admission.Interface {
	return certificateSubject{admission.NewHandler(admission.Create)}
}

func (certificateSubject) Validate(
	_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces,
) error {
	request, ok, err := plugin.Object[*certificatesv1.CertificateSigningRequest](a, signingRequests)
	if !ok || request.Spec.SignerName != certificatesv1.KubeAPIServerClientSignerName {
		return err
	}
	parsed, err := plugin.ParseCertificateRequest(request.Spec.Request)
	if err != nil {
		return plugin.Forbid(a, "spec.request: %w", err)
	}
	if slices.Contains(parsed.Subject.Organization, user.SystemPrivilegedGroup) {
		return plugin.Forbid(a,
			"certificates with the group (organization) %s may not be requested from signer %s",
			user.SystemPrivilegedGroup, request.Spec.SignerName)
	}
	return nil
}

// trustBundleAttest (ClusterTrustBundleAttest) requires permission to attest for a signer in order
// to publish its trust bundle.
type trustBundleAttest struct {
	*admission.Handler
	plugin.WantsAuthorizer
}

func newTrustBundleAttest() admission.Interface {
	return &trustBundleAttest{Handler: admission.NewHandler(admission.Create, admission.Update)}
}

func (p *trustBundleAttest) Validate(
	ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces,
) error {
	if !plugin.Is(a, certificatesv1.Resource("clustertrustbundles"), "") {
		return nil
	}
	signer, err := signerOf(a.GetObject())
	if err != nil || signer == "" || sameButMetadata(a) {
		return err
	}
	return mayUseSigner(ctx, p.Authorizer, a, "attest", signer)
}

// sameButMetadata reports whether an update changes nothing but owner references, finalizers and
// managed fields. The garbage collector and storage migrations send such updates.
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
	return "", fmt.Errorf("unexpected type %T, want ClusterTrustBundle", bundle)
}
