package plugin

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
)

// ParseCertificateRequest parses a PEM-encoded certificate signing request.
func ParseCertificateRequest(data []byte) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(data)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, errors.New("not a PEM-encoded certificate request")
	}
	return x509.ParseCertificateRequest(block.Bytes)
}
