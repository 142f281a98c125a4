package certificaterequests

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
)

// The groups and user names of kubelets.
const (
	nodesGroup     = "system:nodes"
	nodeUserPrefix = "system:node:"
)

// parse returns the X.509 request in a PEM block.
func parse(request []byte) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(request)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, errors.New("spec.request has no PEM block of type CERTIFICATE REQUEST")
	}
	parsed, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("spec.request: %w", err)
	}
	return parsed, nil
}

// signers are the rules of the signers: what a request must be like to be signed.
var signers = map[string]func(*x509.CertificateRequest, []certificatesv1.KeyUsage) error{
	certificatesv1.KubeAPIServerClientSignerName:        checkClient,
	certificatesv1.KubeAPIServerClientKubeletSignerName: checkKubeletClient,
	certificatesv1.KubeletServingSignerName:             checkKubeletServing,
	// Version v1 of the API refuses this signer, so such requests only come from the storage of an
	// old cluster. It signs whatever was approved.
	"kubernetes.io/legacy-unknown": func(*x509.CertificateRequest, []certificatesv1.KeyUsage) error {
		return nil
	},
}

func checkClient(_ *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error {
	for _, u := range usages {
		switch u {
		case certificatesv1.UsageClientAuth, certificatesv1.UsageDigitalSignature,
			certificatesv1.UsageKeyEncipherment:
		default:
			return fmt.Errorf("invalid usage for client certificate: %s", u)
		}
	}
	if !slices.Contains(usages, certificatesv1.UsageClientAuth) {
		return fmt.Errorf("missing required usage for client certificate: %s",
			certificatesv1.UsageClientAuth)
	}
	return nil
}

func checkKubeletClient(r *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error {
	if err := checkNodeSubject(r); err != nil {
		return err
	}
	if len(r.DNSNames) > 0 {
		return errors.New("DNS subjectAltNames are not allowed")
	}
	if len(r.IPAddresses) > 0 {
		return errors.New("IP subjectAltNames are not allowed")
	}
	return checkUsages(usages, certificatesv1.UsageClientAuth)
}

func checkKubeletServing(r *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error {
	if err := checkNodeSubject(r); err != nil {
		return err
	}
	if len(r.DNSNames) == 0 && len(r.IPAddresses) == 0 {
		return errors.New("DNS or IP subjectAltName is required")
	}
	return checkUsages(usages, certificatesv1.UsageServerAuth)
}

func checkNodeSubject(r *x509.CertificateRequest) error {
	switch {
	case !slices.Equal(r.Subject.Organization, []string{nodesGroup}):
		return fmt.Errorf("subject organization is not %s", nodesGroup)
	case !strings.HasPrefix(r.Subject.CommonName, nodeUserPrefix):
		return fmt.Errorf("subject common name does not begin with %s", nodeUserPrefix)
	case len(r.EmailAddresses) > 0:
		return errors.New("email subjectAltNames are not allowed")
	case len(r.URIs) > 0:
		return errors.New("URI subjectAltNames are not allowed")
	}
	return nil
}

// checkUsages checks that usages are those of a kubelet's certificate for auth. Keys of elliptic
// curves have no use for key encipherment.
func checkUsages(usages []certificatesv1.KeyUsage, auth certificatesv1.KeyUsage) error {
	allowed := []certificatesv1.KeyUsage{
		auth, certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment,
	}
	for _, u := range usages {
		if !slices.Contains(allowed, u) {
			return fmt.Errorf("invalid usage: %s, must be one of %q", u, allowed)
		}
	}
	for _, required := range allowed[:2] {
		if !slices.Contains(usages, required) {
			return fmt.Errorf("missing required usage: %s", required)
		}
	}
	return nil
}

var (
	keyUsages = map[certificatesv1.KeyUsage]x509.KeyUsage{
		certificatesv1.UsageSigning:           x509.KeyUsageDigitalSignature,
		certificatesv1.UsageDigitalSignature:  x509.KeyUsageDigitalSignature,
		certificatesv1.UsageContentCommitment: x509.KeyUsageContentCommitment,
		certificatesv1.UsageKeyEncipherment:   x509.KeyUsageKeyEncipherment,
		certificatesv1.UsageDataEncipherment:  x509.KeyUsageDataEncipherment,
		certificatesv1.UsageKeyAgreement:      x509.KeyUsageKeyAgreement,
		certificatesv1.UsageCertSign:          x509.KeyUsageCertSign,
		certificatesv1.UsageCRLSign:           x509.KeyUsageCRLSign,
		certificatesv1.UsageEncipherOnly:      x509.KeyUsageEncipherOnly,
		certificatesv1.UsageDecipherOnly:      x509.KeyUsageDecipherOnly,
	}
	extendedKeyUsages = map[certificatesv1.KeyUsage]x509.ExtKeyUsage{
		certificatesv1.UsageAny:             x509.ExtKeyUsageAny,
		certificatesv1.UsageServerAuth:      x509.ExtKeyUsageServerAuth,
		certificatesv1.UsageClientAuth:      x509.ExtKeyUsageClientAuth,
		certificatesv1.UsageCodeSigning:     x509.ExtKeyUsageCodeSigning,
		certificatesv1.UsageEmailProtection: x509.ExtKeyUsageEmailProtection,
		certificatesv1.UsageSMIME:           x509.ExtKeyUsageEmailProtection,
		certificatesv1.UsageIPsecEndSystem:  x509.ExtKeyUsageIPSECEndSystem,
		certificatesv1.UsageIPsecTunnel:     x509.ExtKeyUsageIPSECTunnel,
		certificatesv1.UsageIPsecUser:       x509.ExtKeyUsageIPSECUser,
		certificatesv1.UsageTimestamping:    x509.ExtKeyUsageTimeStamping,
		certificatesv1.UsageOCSPSigning:     x509.ExtKeyUsageOCSPSigning,
		certificatesv1.UsageMicrosoftSGC:    x509.ExtKeyUsageMicrosoftServerGatedCrypto,
		certificatesv1.UsageNetscapeSGC:     x509.ExtKeyUsageNetscapeServerGatedCrypto,
	}
)

// template returns the certificate that a request asks for, without its times.
func template(
	r *x509.CertificateRequest, usages []certificatesv1.KeyUsage,
) (*x509.Certificate, error) {
	t := &x509.Certificate{
		Subject:        r.Subject,
		DNSNames:       r.DNSNames,
		IPAddresses:    r.IPAddresses,
		EmailAddresses: r.EmailAddresses,
		URIs:           r.URIs,
	}
	for _, u := range usages {
		usage, ok := keyUsages[u]
		extended, isExtended := extendedKeyUsages[u]
		switch {
		case ok:
			t.KeyUsage |= usage
		case !isExtended:
			return nil, fmt.Errorf("unrecognized usage: %s", u)
		case !slices.Contains(t.ExtKeyUsage, extended):
			t.ExtKeyUsage = append(t.ExtKeyUsage, extended)
		}
	}
	slices.Sort(t.ExtKeyUsage)
	return t, nil
}
