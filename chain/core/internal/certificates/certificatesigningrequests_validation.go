package certificates

import (
	"bytes"
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/core/internal/rules/signers"
)

const (
	// legacySigner was the default signer in v1beta1.
	legacySigner = "kubernetes.io/legacy-unknown"
	// minExpirationSeconds is ten minutes.
	minExpirationSeconds = 600
)

var usages = sets.New(
	certificatesv1.UsageSigning, certificatesv1.UsageDigitalSignature,
	certificatesv1.UsageContentCommitment, certificatesv1.UsageKeyEncipherment,
	certificatesv1.UsageKeyAgreement, certificatesv1.UsageDataEncipherment,
	certificatesv1.UsageCertSign, certificatesv1.UsageCRLSign,
	certificatesv1.UsageEncipherOnly, certificatesv1.UsageDecipherOnly, certificatesv1.UsageAny,
	certificatesv1.UsageServerAuth, certificatesv1.UsageClientAuth, certificatesv1.UsageCodeSigning,
	certificatesv1.UsageEmailProtection, certificatesv1.UsageSMIME, certificatesv1.UsageIPsecEndSystem,
	certificatesv1.UsageIPsecTunnel, certificatesv1.UsageIPsecUser, certificatesv1.UsageTimestamping,
	certificatesv1.UsageOCSPSigning, certificatesv1.UsageMicrosoftSGC, certificatesv1.UsageNetscapeSGC)

// tolerated lists the invalid values that an update may keep because v1beta1 let them in.
type tolerated struct {
	legacySigner    bool
	unknownUsages   bool
	duplicateUsages bool
	bothDecisions   bool
	duplicateTypes  bool
	emptyTypes      bool
	anyCertificate  bool
}

func toleratedIn(r, old *certificatesv1.CertificateSigningRequest) tolerated {
	t := tolerated{
		legacySigner:    old.Spec.SignerName == legacySigner,
		unknownUsages:   !usages.HasAll(old.Spec.Usages...),
		duplicateUsages: sets.New(old.Spec.Usages...).Len() < len(old.Spec.Usages),
		bothDecisions: len(ofType(old, certificatesv1.CertificateApproved)) > 0 &&
			len(ofType(old, certificatesv1.CertificateDenied)) > 0,
		emptyTypes:     len(ofType(old, "")) > 0,
		anyCertificate: bytes.Equal(r.Status.Certificate, old.Status.Certificate),
	}
	if len(old.Status.Certificate) > 0 && parseCertificates(old.Status.Certificate, false) != nil {
		t.anyCertificate = true
	}
	for _, c := range old.Status.Conditions {
		t.duplicateTypes = t.duplicateTypes || len(ofType(old, c.Type)) > 1
	}
	return t
}

func validateRequest(r *certificatesv1.CertificateSigningRequest, t tolerated) field.ErrorList {
	at := field.NewPath("spec")
	var errs field.ErrorList
	if err := parseRequest(r.Spec.Request); err != nil {
		errs = append(errs, field.Invalid(at.Child("request"), r.Spec.Request, err.Error()))
	}
	if len(r.Spec.Usages) == 0 {
		errs = append(errs, field.Required(at.Child("usages"), "at least one usage is required"))
	}
	seen := sets.New[certificatesv1.KeyUsage]()
	for i, usage := range r.Spec.Usages {
		if !t.unknownUsages && !usages.Has(usage) {
			errs = append(errs, field.NotSupported(at.Child("usages").Index(i), usage, sets.List(usages)))
		}
		if !t.duplicateUsages && seen.Has(usage) {
			errs = append(errs, field.Duplicate(at.Child("usages").Index(i), usage))
		}
		seen.Insert(usage)
	}
	if !t.legacySigner && r.Spec.SignerName == legacySigner {
		errs = append(errs, field.Invalid(at.Child("signerName"), r.Spec.SignerName,
			"the legacy signerName is not allowed via this API version"))
	} else {
		errs = append(errs, signers.ValidateName(r.Spec.SignerName, at.Child("signerName"))...)
	}
	if s := r.Spec.ExpirationSeconds; s != nil && *s < minExpirationSeconds {
		errs = append(errs, field.Invalid(at.Child("expirationSeconds"), *s,
			fmt.Sprintf("must be at least %d (ten minutes)", minExpirationSeconds)))
	}
	errs = append(errs, validateConditions(r, t)...)
	if len(r.Status.Certificate) > 0 && !t.anyCertificate {
		if err := parseCertificates(r.Status.Certificate, false); err != nil {
			errs = append(errs, field.Invalid(field.NewPath("status", "certificate"),
				"<certificate data>", err.Error()))
		}
	}
	return errs
}

func validateConditions(r *certificatesv1.CertificateSigningRequest, t tolerated) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("status", "conditions")
	seen := sets.New[certificatesv1.RequestConditionType]()
	for i, c := range r.Status.Conditions {
		at := path.Index(i)
		if c.Type == "" && !t.emptyTypes {
			errs = append(errs, field.Required(at.Child("type"), ""))
		}
		statuses, opposite := sets.New(corev1.ConditionTrue), certificatesv1.RequestConditionType("")
		switch c.Type {
		case certificatesv1.CertificateApproved:
			opposite = certificatesv1.CertificateDenied
		case certificatesv1.CertificateDenied:
			opposite = certificatesv1.CertificateApproved
		case certificatesv1.CertificateFailed:
		default:
			statuses.Insert(corev1.ConditionFalse, corev1.ConditionUnknown)
		}
		switch {
		case c.Status == "":
			errs = append(errs, field.Required(at.Child("status"), ""))
		case !statuses.Has(c.Status):
			errs = append(errs, field.NotSupported(at.Child("status"), c.Status, sets.List(statuses)))
		}
		if opposite != "" && seen.Has(opposite) && !t.bothDecisions {
			errs = append(errs, field.Invalid(path, c.Type, "a request may not be both Approved and Denied"))
		}
		if seen.Has(c.Type) && !t.duplicateTypes {
			errs = append(errs, field.Duplicate(at.Child("type"), c.Type))
		}
		seen.Insert(c.Type)
	}
	return errs
}

// change is what an update may change besides the metadata.
type change int

const (
	onlyMetadata change = iota
	// decision allows adding an Approved or Denied condition.
	decision
	// certificate allows setting the certificate, once, and changing the other conditions.
	certificate
)

func validateChange(
	r, old *certificatesv1.CertificateSigningRequest, allowed change,
) field.ErrorList {
	errs := validateRequest(r, toleratedIn(r, old))
	at := field.NewPath("status", "conditions")
	for _, t := range []certificatesv1.RequestConditionType{
		certificatesv1.CertificateApproved, certificatesv1.CertificateDenied,
		certificatesv1.CertificateFailed,
	} {
		now, before := ofType(r, t), ofType(old, t)
		fixed := allowed != decision && t != certificatesv1.CertificateFailed
		switch {
		case len(now) < len(before):
			errs = append(errs, field.Forbidden(at, fmt.Sprintf("the %s condition may not be removed", t)))
		case fixed && len(now) > len(before):
			errs = append(errs, field.Forbidden(at,
				fmt.Sprintf("the %s condition may only be added through the approval subresource", t)))
		case fixed && !equality.Semantic.DeepEqual(now, before):
			errs = append(errs, field.Forbidden(at,
				fmt.Sprintf("the %s condition may only be changed through the approval subresource", t)))
		}
	}
	if !bytes.Equal(r.Status.Certificate, old.Status.Certificate) {
		at := field.NewPath("status", "certificate")
		if allowed != certificate {
			errs = append(errs, field.Forbidden(at, "may only be set through the status subresource"))
		} else if len(old.Status.Certificate) > 0 {
			errs = append(errs, field.Forbidden(at, "may not be changed once it is set"))
		}
	}
	return errs
}
