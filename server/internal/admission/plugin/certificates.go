package plugin

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
)

// ParseCertificateRequest reads a certificate signing request in PEM.
func ParseCertificateRequest(data []byte) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(data)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, errors.New("not a certificate request in PEM")
	}
	return x509.ParseCertificateRequest(block.Bytes)
}
