package certificates

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kinproc/kinproc/chain/core/internal/rules"
	"github.com/kinproc/kinproc/chain/core/internal/rules/signers"
	"github.com/kinproc/kinproc/chain/features"
	"github.com/kinproc/kinproc/chain/kind"
)

// Lifetimes of pod certificates, in seconds.
const (
	minPodCertificateLifetime        = 60 * 60
	defaultPodCertificateLifetime    = 24 * 60 * 60
	maxPodCertificateLifetime        = 91 * 24 * 60 * 60
	maxKubernetesCertificateLifetime = 24 * 60 * 60
)

const (
	// maxKeyMaterial is the maximum size of a key, a proof or a request in bytes.
	maxKeyMaterial = 10 << 10
	maxUID         = 128
)

// PodCertificateRequests declares podcertificaterequests (KEP-4317). Kubernetes 1.37, which
// introduces v1, still stores them as v1beta1. Issuing or refusing a certificate requires
// permission to "sign" for the signer.
func PodCertificateRequests(
	authorizer authorizer.UnconditionalAuthorizer,
) *kind.Kind[*certificatesv1beta1.PodCertificateRequest] {
	type T = *certificatesv1beta1.PodCertificateRequest
	return &kind.Kind[T]{
		Plural:  "podcertificaterequests",
		Enabled: func() bool { return features.Enabled(features.PodCertificateRequest) },
		Versions: []kind.Version{kind.ServedAs(podCertificateRequestFromV1, podCertificateRequestToV1,
			func(r *certificatesv1.PodCertificateRequest) {
				r.Spec.MaxExpirationSeconds = lifetimeOr(r.Spec.MaxExpirationSeconds,
					defaultPodCertificateLifetime)
			})},
		Default: func(r T) {
			r.Spec.MaxExpirationSeconds = lifetimeOr(r.Spec.MaxExpirationSeconds,
				defaultPodCertificateLifetime)
		},
		Validate: func(_ context.Context, r T) field.ErrorList {
			return validatePodCertificateRequest(&r.Spec, field.NewPath("spec"))
		},
		ValidateUpdate: func(_ context.Context, r, old T) field.ErrorList {
			return apivalidation.ValidateImmutableField(r.Spec, old.Spec, field.NewPath("spec"))
		},
		Table: kind.Table[T]{
			Columns: []kind.Column{
				kind.NameColumn(),
				{Name: "PodName", Description: "Pod that the certificate is for."},
				{Name: "ServiceAccountName", Description: "Service account that the pod runs as."},
				{Name: "NodeName", Description: "Node that the pod runs on."},
				{Name: "SignerName", Description: "Signer that is asked to issue the certificate."},
				{Name: "State", Description: "State of the request."},
				{Name: "UnverifiedUserAnnotations", Description: "What the pod asks the signer to consider."},
			},
			Row: func(r T) []any {
				state := "Pending"
				if decided := podCertificateDecision(&r.Status); decided != "" {
					state = decided
				}
				return []any{
					r.Name, r.Spec.PodName, r.Spec.ServiceAccountName, string(r.Spec.NodeName), r.Spec.SignerName,
					state, labels.FormatLabels(r.Spec.UnverifiedUserAnnotations),
				}
			},
		},
		Status: &kind.Status[T]{
			Prepare: func(_ context.Context, r, old T) { metav1.ResetObjectMetaForStatus(r, old) },
			Validate: func(ctx context.Context, r, old T) field.ErrorList {
				if errs := validatePodCertificateStatus(r, old); len(errs) > 0 ||
					equality.Semantic.DeepEqual(r.Status, old.Status) {
					return errs
				}
				at := field.NewPath("spec", "signerName")
				user, ok := request.UserFrom(ctx)
				if !ok {
					return field.ErrorList{field.InternalError(at, errors.New("the request has no user"))}
				}
				if !MayUseSigner(ctx, authorizer, user, "sign", old.Spec.SignerName) {
					return field.ErrorList{field.Forbidden(at,
						fmt.Sprintf("user %q may not sign for %q", user.GetName(), old.Spec.SignerName))}
				}
				return nil
			},
		},
		// a status sent to the main resource is ignored, but its field manager is recorded
		ResetFields: []string{},
		Fields: map[string]func(T) string{
			"spec.signerName": func(r T) string { return r.Spec.SignerName },
			"spec.podName":    func(r T) string { return r.Spec.PodName },
			"spec.nodeName":   func(r T) string { return string(r.Spec.NodeName) },
		},
		RequireResourceVersion: true,
	}
}

func lifetimeOr(seconds *int32, otherwise int32) *int32 {
	if seconds == nil {
		return &otherwise
	}
	return seconds
}

func podCertificateRequestFromV1(
	in *certificatesv1.PodCertificateRequest, out *certificatesv1beta1.PodCertificateRequest,
) error {
	out.ObjectMeta = in.ObjectMeta
	s := &in.Spec
	out.Spec = certificatesv1beta1.PodCertificateRequestSpec{
		SignerName: s.SignerName,
		PodName:    s.PodName, PodUID: s.PodUID,
		ServiceAccountName: s.ServiceAccountName, ServiceAccountUID: s.ServiceAccountUID,
		NodeName: s.NodeName, NodeUID: s.NodeUID,
		MaxExpirationSeconds:      s.MaxExpirationSeconds,
		StubPKCS10Request:         s.StubPKCS10Request,
		UnverifiedUserAnnotations: s.UnverifiedUserAnnotations,
	}
	out.Status = certificatesv1beta1.PodCertificateRequestStatus(in.Status)
	return nil
}

// podCertificateRequestToV1 drops pkixPublicKey and proofOfPossession, which v1 does not have.
func podCertificateRequestToV1(
	in *certificatesv1beta1.PodCertificateRequest, out *certificatesv1.PodCertificateRequest,
) error {
	out.ObjectMeta = in.ObjectMeta
	s := &in.Spec
	out.Spec = certificatesv1.PodCertificateRequestSpec{
		SignerName: s.SignerName,
		PodName:    s.PodName, PodUID: s.PodUID,
		ServiceAccountName: s.ServiceAccountName, ServiceAccountUID: s.ServiceAccountUID,
		NodeName: s.NodeName, NodeUID: s.NodeUID,
		MaxExpirationSeconds:      s.MaxExpirationSeconds,
		StubPKCS10Request:         s.StubPKCS10Request,
		UnverifiedUserAnnotations: s.UnverifiedUserAnnotations,
	}
	out.Status = certificatesv1.PodCertificateRequestStatus(in.Status)
	return nil
}

func validatePodCertificateRequest(
	s *certificatesv1beta1.PodCertificateRequestSpec, at *field.Path,
) field.ErrorList {
	errs := signers.ValidateName(s.SignerName, at.Child("signerName"))
	errs = append(errs, validateUserAnnotations(s.UnverifiedUserAnnotations,
		at.Child("unverifiedUserAnnotations"))...)
	for _, object := range []struct {
		kind, name string
		uid        types.UID
	}{
		{"pod", s.PodName, s.PodUID},
		{"serviceAccount", s.ServiceAccountName, s.ServiceAccountUID},
		{"node", string(s.NodeName), s.NodeUID},
	} {
		errs = append(errs, rules.Invalid(at.Child(object.kind+"Name"), object.name,
			apivalidation.NameIsDNSSubdomain(object.name, false))...)
		if object.uid == "" {
			errs = append(errs, field.Invalid(at.Child(object.kind+"UID"), object.uid, "cannot be empty"))
		} else if len(object.uid) > maxUID {
			errs = append(errs, field.TooLong(at.Child(object.kind+"UID"), object.uid, maxUID))
		}
	}
	longest := int32(maxPodCertificateLifetime)
	if isKubernetesSigner(s.SignerName) {
		longest = maxKubernetesCertificateLifetime
	}
	if s.MaxExpirationSeconds == nil {
		return append(errs, field.Required(at.Child("maxExpirationSeconds"), ""))
	}
	if seconds := *s.MaxExpirationSeconds; seconds < minPodCertificateLifetime || seconds > longest {
		errs = append(errs, field.Invalid(at.Child("maxExpirationSeconds"), seconds,
			fmt.Sprintf("must be between %d and %d", minPodCertificateLifetime, longest)))
	}
	return append(errs, validateKeyMaterial(s, at)...)
}

// validateUserAnnotations checks that each key has a domain prefix. The values are up to the
// signer.
func validateUserAnnotations(annotations map[string]string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for key := range annotations {
		errs = append(errs, validation.IsDomainPrefixedKey(at, strings.ToLower(key))...)
	}
	if apivalidation.ValidateAnnotationsSize(annotations) != nil {
		errs = append(errs, field.TooLong(at,
			"" /* not the values */, apivalidation.TotalAnnotationSizeLimitB))
	}
	return errs
}

// validateKeyMaterial requires a proof that the client has the private key: either a signed PKCS#10
// request, or a public key and a signature.
func validateKeyMaterial(
	s *certificatesv1beta1.PodCertificateRequestSpec, at *field.Path,
) field.ErrorList {
	stub, key, proof := at.Child("stubPKCS10Request"), at.Child("pkixPublicKey"),
		at.Child("proofOfPossession")
	for _, material := range []struct {
		at   *field.Path
		data []byte
	}{{key, s.PKIXPublicKey}, {proof, s.ProofOfPossession}, {stub, s.StubPKCS10Request}} {
		if len(material.data) > maxKeyMaterial {
			return field.ErrorList{field.TooLong(material.at, "" /* not the data */, maxKeyMaterial)}
		}
	}
	hasStub, hasKey, hasProof := len(s.StubPKCS10Request) > 0, len(s.PKIXPublicKey) > 0,
		len(s.ProofOfPossession) > 0
	switch {
	case hasStub && !hasKey && !hasProof:
		parsed, err := x509.ParseCertificateRequest(s.StubPKCS10Request)
		if err != nil {
			return field.ErrorList{field.Invalid(stub, field.OmitValueType{},
				"must be a DER-encoded PKCS#10 certificate signing request")}
		}
		if err := parsed.CheckSignature(); err != nil {
			return field.ErrorList{field.Invalid(stub, field.OmitValueType{},
				"must be signed with the private key that belongs to its public key")}
		}
		if err := checkPodKey(parsed.PublicKey); err != nil {
			return field.ErrorList{field.Invalid(stub, field.OmitValueType{}, err.Error())}
		}
	case !hasStub && hasKey && hasProof:
		public, err := x509.ParsePKIXPublicKey(s.PKIXPublicKey)
		if err != nil {
			return field.ErrorList{
				field.Invalid(key, field.OmitValueType{}, "must be a DER-encoded PKIX public key"),
			}
		}
		if err := checkPodKey(public); err != nil {
			return field.ErrorList{field.Invalid(key, field.OmitValueType{}, err.Error())}
		}
		if !provesPossession(public, []byte(s.PodUID), s.ProofOfPossession) {
			return field.ErrorList{field.Invalid(proof, field.OmitValueType{},
				"must be the pod's UID signed with the private key that belongs to pkixPublicKey")}
		}
	default:
		return field.ErrorList{field.Invalid(at, field.OmitValueType{},
			"must have either stubPKCS10Request or both pkixPublicKey and proofOfPossession")}
	}
	return nil
}

func checkPodKey(public crypto.PublicKey) error {
	switch key := public.(type) {
	case ed25519.PublicKey:
		return nil
	case *ecdsa.PublicKey:
		if key.Curve != elliptic.P256() && key.Curve != elliptic.P384() && key.Curve != elliptic.P521() {
			return errors.New("an ECDSA key must use the curve P256, P384 or P521")
		}
		return nil
	case *rsa.PublicKey:
		if bits := key.Size() * 8; bits != 3072 && bits != 4096 {
			return fmt.Errorf("an RSA key must have 3072 or 4096 bits, not %d", bits)
		}
		return nil
	}
	return errors.New("the key must be of type Ed25519, ECDSA or RSA")
}

func provesPossession(public crypto.PublicKey, message, signature []byte) bool {
	hash := sha256.Sum256(message)
	switch key := public.(type) {
	case ed25519.PublicKey:
		return ed25519.Verify(key, message, signature)
	case *ecdsa.PublicKey:
		return ecdsa.VerifyASN1(key, hash[:], signature)
	case *rsa.PublicKey:
		return rsa.VerifyPSS(key, crypto.SHA256, hash[:], signature, nil) == nil
	}
	return false
}
