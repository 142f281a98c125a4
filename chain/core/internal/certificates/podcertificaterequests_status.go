package certificates

import (
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/mail"
	"strings"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	// maxCertificateChain is the maximum size of a certificate chain in bytes.
	maxCertificateChain = 100 << 10
	// clockSkew is how far from now a certificate's notBefore may be.
	clockSkew = 5 * time.Minute
	// refreshMargin is the minimum distance of beginRefreshAt from notBefore and notAfter.
	refreshMargin = 10 * time.Minute
)

// podCertificateDecision returns the type of the condition that decided the request, or "" while
// the request is pending.
func podCertificateDecision(s *certificatesv1beta1.PodCertificateRequestStatus) string {
	for _, c := range s.Conditions {
		if podCertificateDecisions().Has(c.Type) && c.Status == metav1.ConditionTrue {
			return c.Type
		}
	}
	return ""
}

func podCertificateDecisions() sets.Set[string] {
	return sets.New(
		certificatesv1beta1.PodCertificateRequestConditionTypeDenied,
		certificatesv1beta1.PodCertificateRequestConditionTypeFailed,
		certificatesv1beta1.PodCertificateRequestConditionTypeIssued,
	)
}

// validatePodCertificateStatus lets a request be decided once. The decision is final.
func validatePodCertificateStatus(
	r, old *certificatesv1beta1.PodCertificateRequest,
) field.ErrorList {
	at := field.NewPath("status")
	if errs := validatePodCertificateConditions(r.Status.Conditions,
		at.Child("conditions")); len(errs) > 0 {
		return errs
	}
	must := func(same bool, why string) field.ErrorList {
		if same {
			return nil
		}
		return field.ErrorList{field.Invalid(at, field.OmitValueType{}, why)}
	}
	if decided := podCertificateDecision(&old.Status); decided != "" {
		return must(equality.Semantic.DeepEqual(r.Status, old.Status),
			"the request is already "+decided+" and may not be changed")
	}
	switch podCertificateDecision(&r.Status) {
	case certificatesv1beta1.PodCertificateRequestConditionTypeDenied,
		certificatesv1beta1.PodCertificateRequestConditionTypeFailed:
		bare := certificatesv1beta1.PodCertificateRequestStatus{Conditions: r.Status.Conditions}
		return must(equality.Semantic.DeepEqual(r.Status, bare),
			"only conditions may be set when the request is Denied or Failed")
	case certificatesv1beta1.PodCertificateRequestConditionTypeIssued:
		return validateIssued(&r.Status, &old.Spec, at)
	}
	return must(equality.Semantic.DeepEqual(r.Status, old.Status),
		"may only be changed together with an Issued, Denied or Failed condition")
}

func validatePodCertificateConditions(
	conditions []metav1.Condition, at *field.Path,
) field.ErrorList {
	var errs field.ErrorList
	decisions := 0
	for i, c := range conditions {
		// kube-apiserver's field path has a dot before the index here.
		at := at.Child(fmt.Sprintf("[%d]", i))
		if !podCertificateDecisions().Has(c.Type) {
			errs = append(errs, field.NotSupported(at.Child("type"), c.Type,
				sets.List(podCertificateDecisions())))
			continue
		}
		if decisions++; decisions > 1 {
			errs = append(errs, field.Invalid(at.Child("type"), c.Type,
				"only one of the conditions Denied, Failed and Issued may be set"))
		}
		if c.Status != metav1.ConditionTrue {
			errs = append(errs, field.NotSupported(at.Child("status"), c.Status,
				[]metav1.ConditionStatus{metav1.ConditionTrue}))
		}
	}
	return append(errs, metavalidation.ValidateConditions(conditions, at)...)
}

// validateIssued checks an issued certificate against the other fields of the status and against
// the request's spec.
func validateIssued(
	s *certificatesv1beta1.PodCertificateRequestStatus,
	spec *certificatesv1beta1.PodCertificateRequestSpec, at *field.Path,
) field.ErrorList {
	chain := at.Child("certificateChain")
	invalid := func(at *field.Path, format string, args ...any) field.ErrorList {
		return field.ErrorList{field.Invalid(at, field.OmitValueType{}, fmt.Sprintf(format, args...))}
	}
	if len(s.CertificateChain) > maxCertificateChain {
		return field.ErrorList{field.TooLong(chain, "" /* not the data */, maxCertificateChain)}
	}
	leaf, rest, err := nextCertificate([]byte(s.CertificateChain))
	if err != nil || leaf == nil {
		return invalid(chain, "must start with a PEM-encoded certificate")
	}
	errs := validateNames(leaf, chain)
	if !issuedTo(leaf, spec) {
		return append(errs, invalid(chain, "must be issued for the public key in the request")...)
	}
	notBefore, notAfter, refresh := at.Child("notBefore"), at.Child("notAfter"),
		at.Child("beginRefreshAt")
	for _, t := range []struct {
		at    *field.Path
		value *metav1.Time
	}{{notBefore, s.NotBefore}, {notAfter, s.NotAfter}, {refresh, s.BeginRefreshAt}} {
		if t.value == nil {
			errs = append(errs, field.Required(t.at, "required when a certificate is issued"))
		}
	}
	if len(errs) > 0 {
		return errs
	}
	lifetime := leaf.NotAfter.Sub(leaf.NotBefore)
	away := time.Since(s.NotBefore.Time).Abs()
	switch {
	case !s.NotBefore.Time.Equal(leaf.NotBefore):
		return invalid(notBefore, "must match the certificate")
	case away >= clockSkew:
		return invalid(notBefore, "must be within %s of now", clockSkew)
	case !s.NotAfter.Time.Equal(leaf.NotAfter):
		return invalid(notAfter, "must match the certificate")
	case lifetime < minPodCertificateLifetime*time.Second:
		return invalid(chain, "must be valid for at least an hour")
	case lifetime > time.Duration(*spec.MaxExpirationSeconds)*time.Second:
		return invalid(chain, "must not be valid for longer than spec.maxExpirationSeconds (%d)",
			*spec.MaxExpirationSeconds)
	case s.BeginRefreshAt.Time.Before(s.NotBefore.Add(refreshMargin)):
		return invalid(refresh, "must be at least %s after notBefore", refreshMargin)
	case s.BeginRefreshAt.Time.After(s.NotAfter.Add(-refreshMargin)):
		return invalid(refresh, "must be at least %s before notAfter", refreshMargin)
	}
	for len(rest) > 0 {
		var next *x509.Certificate
		if next, rest, err = nextCertificate(rest); err != nil {
			return invalid(chain, "must contain only PEM-encoded certificates: %v", err)
		}
		if next == nil {
			break
		}
	}
	return nil
}

// nextCertificate parses the certificate in the first PEM block of data and returns the rest. The
// certificate is nil if data has no PEM block.
func nextCertificate(data []byte) (certificate *x509.Certificate, rest []byte, err error) {
	block, rest := pem.Decode(data)
	if block == nil {
		return nil, rest, nil
	}
	if block.Type != certificateBlock {
		return nil, rest, fmt.Errorf("unexpected PEM block of type %q", block.Type)
	}
	certificate, err = x509.ParseCertificate(block.Bytes)
	return certificate, rest, err
}

func validateNames(leaf *x509.Certificate, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range leaf.DNSNames {
		if name == "" {
			errs = append(errs, field.Invalid(at, name, "has an empty DNS name"))
		}
		if strings.Contains(name, "..") {
			errs = append(errs, field.Invalid(at, name, "has a DNS name with an empty label"))
		}
		if strings.HasPrefix(name, ".") || strings.HasSuffix(name, ".") {
			errs = append(errs, field.Invalid(at, name, "has a DNS name that begins or ends with a dot"))
		}
	}
	for _, address := range leaf.EmailAddresses {
		if _, err := mail.ParseAddress(address); err != nil {
			errs = append(errs, field.Invalid(at, address, "has an invalid e-mail address"))
		}
	}
	return errs
}

func issuedTo(leaf *x509.Certificate, spec *certificatesv1beta1.PodCertificateRequestSpec) bool {
	public, err := x509.ParsePKIXPublicKey(spec.PKIXPublicKey)
	if len(spec.StubPKCS10Request) > 0 {
		var parsed *x509.CertificateRequest
		if parsed, err = x509.ParseCertificateRequest(spec.StubPKCS10Request); err == nil {
			public = parsed.PublicKey
		}
	}
	key, ok := public.(interface{ Equal(crypto.PublicKey) bool })
	return err == nil && ok && key.Equal(leaf.PublicKey)
}
