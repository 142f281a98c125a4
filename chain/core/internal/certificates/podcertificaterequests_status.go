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
	// maxCertificateChain bounds a chain, in bytes.
	maxCertificateChain = 100 << 10
	// clockSkew is how far from now a certificate may begin.
	clockSkew = 5 * time.Minute
	// refreshMargin keeps the refresh away from both ends of a certificate's life.
	refreshMargin = 10 * time.Minute
)

// podCertificateDecision is the condition that ended the request, empty while it is open.
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

// validatePodCertificateStatus lets a request be decided once, for good.
func validatePodCertificateStatus(r, old *certificatesv1beta1.PodCertificateRequest) field.ErrorList {
	at := field.NewPath("status")
	if errs := validatePodCertificateConditions(r.Status.Conditions, at.Child("conditions")); len(errs) > 0 {
		return errs
	}
	must := func(same bool, why string) field.ErrorList {
		if same {
			return nil
		}
		return field.ErrorList{field.Invalid(at, field.OmitValueType{}, why)}
	}
	if decided := podCertificateDecision(&old.Status); decided != "" {
		return must(equality.Semantic.DeepEqual(r.Status, old.Status), "the request is "+decided+", which is for good")
	}
	switch podCertificateDecision(&r.Status) {
	case certificatesv1beta1.PodCertificateRequestConditionTypeDenied, certificatesv1beta1.PodCertificateRequestConditionTypeFailed:
		bare := certificatesv1beta1.PodCertificateRequestStatus{Conditions: r.Status.Conditions}
		return must(equality.Semantic.DeepEqual(r.Status, bare), "a request that is refused gets a condition and nothing else")
	case certificatesv1beta1.PodCertificateRequestConditionTypeIssued:
		return validateIssued(&r.Status, &old.Spec, at)
	}
	return must(equality.Semantic.DeepEqual(r.Status, old.Status), "changes only together with a condition Issued, Denied or Failed")
}

func validatePodCertificateConditions(conditions []metav1.Condition, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	decisions := 0
	for i, c := range conditions {
		// kube-apiserver's path of a condition has a dot before the index here.
		at := at.Child(fmt.Sprintf("[%d]", i))
		if !podCertificateDecisions().Has(c.Type) {
			errs = append(errs, field.NotSupported(at.Child("type"), c.Type, sets.List(podCertificateDecisions())))
			continue
		}
		if decisions++; decisions > 1 {
			errs = append(errs, field.Invalid(at.Child("type"), c.Type, "a request is decided once"))
		}
		if c.Status != metav1.ConditionTrue {
			errs = append(errs, field.NotSupported(at.Child("status"), c.Status, []metav1.ConditionStatus{metav1.ConditionTrue}))
		}
	}
	return append(errs, metavalidation.ValidateConditions(conditions, at)...)
}

// validateIssued compares what the signer says of a certificate with the certificate, and with what was asked for.
func validateIssued(s *certificatesv1beta1.PodCertificateRequestStatus, spec *certificatesv1beta1.PodCertificateRequestSpec, at *field.Path) field.ErrorList {
	chain := at.Child("certificateChain")
	invalid := func(at *field.Path, format string, args ...any) field.ErrorList {
		return field.ErrorList{field.Invalid(at, field.OmitValueType{}, fmt.Sprintf(format, args...))}
	}
	if len(s.CertificateChain) > maxCertificateChain {
		return field.ErrorList{field.TooLong(chain, "" /* not the data */, maxCertificateChain)}
	}
	leaf, rest, err := nextCertificate([]byte(s.CertificateChain))
	if err != nil || leaf == nil {
		return invalid(chain, "must begin with a certificate in PEM")
	}
	errs := validateNames(leaf, chain)
	if !issuedTo(leaf, spec) {
		return append(errs, invalid(chain, "is for another key than was asked for")...)
	}
	notBefore, notAfter, refresh := at.Child("notBefore"), at.Child("notAfter"), at.Child("beginRefreshAt")
	for _, t := range []struct {
		at    *field.Path
		value *metav1.Time
	}{{notBefore, s.NotBefore}, {notAfter, s.NotAfter}, {refresh, s.BeginRefreshAt}} {
		if t.value == nil {
			errs = append(errs, field.Required(t.at, "comes with the certificate"))
		}
	}
	if len(errs) > 0 {
		return errs
	}
	lifetime := leaf.NotAfter.Sub(leaf.NotBefore)
	away := time.Since(s.NotBefore.Time).Abs()
	switch {
	case !s.NotBefore.Time.Equal(leaf.NotBefore):
		return invalid(notBefore, "differs from the certificate's")
	case away >= clockSkew:
		return invalid(notBefore, "must be within %s of now", clockSkew)
	case !s.NotAfter.Time.Equal(leaf.NotAfter):
		return invalid(notAfter, "differs from the certificate's")
	case lifetime < minPodCertificateLifetime*time.Second:
		return invalid(chain, "must be valid for an hour at least")
	case lifetime > time.Duration(*spec.MaxExpirationSeconds)*time.Second:
		return invalid(chain, "cannot be valid for longer than spec.maxExpirationSeconds (%d)", *spec.MaxExpirationSeconds)
	case s.BeginRefreshAt.Time.Before(s.NotBefore.Add(refreshMargin)):
		return invalid(refresh, "must be %s or more after notBefore", refreshMargin)
	case s.BeginRefreshAt.Time.After(s.NotAfter.Add(-refreshMargin)):
		return invalid(refresh, "must be %s or more before notAfter", refreshMargin)
	}
	for len(rest) > 0 {
		var next *x509.Certificate
		if next, rest, err = nextCertificate(rest); err != nil {
			return invalid(chain, "must be certificates in PEM, all of it: %v", err)
		}
		if next == nil {
			break
		}
	}
	return nil
}

// nextCertificate takes a certificate from the front of data; without a PEM block there, it is nil.
func nextCertificate(data []byte) (certificate *x509.Certificate, rest []byte, err error) {
	block, rest := pem.Decode(data)
	if block == nil {
		return nil, rest, nil
	}
	if block.Type != certificateBlock {
		return nil, rest, fmt.Errorf("a block is of type %q", block.Type)
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
			errs = append(errs, field.Invalid(at, address, "has an e-mail address that is none"))
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
