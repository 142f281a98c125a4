package certificates

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
)

const (
	requestBlock     = "CERTIFICATE REQUEST"
	certificateBlock = "CERTIFICATE"
)

var (
	errNoRequest     = errors.New("must be a PEM block of type " + requestBlock)
	errNoCertificate = errors.New("must contain at least one PEM block of type " + certificateBlock)
	errNoAuthority   = errors.New("each PEM block must contain exactly one CA certificate")
	errHeaders       = errors.New("PEM blocks must not have headers")
)

func parseRequest(data []byte) error {
	block, _ := pem.Decode(data)
	if block == nil || block.Type != requestBlock {
		return errNoRequest
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return err
	}
	return request.CheckSignature()
}

// parseCertificates checks that data holds PEM blocks of certificates and no other blocks; text
// between the blocks is allowed. Trust anchors must be distinct CA certificates.
func parseCertificates(data []byte, anchors bool) error {
	var seen [][]byte
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			break
		}
		if block.Type != certificateBlock {
			return fmt.Errorf("PEM blocks must be of type %s, not %q", certificateBlock, block.Type)
		}
		if len(block.Headers) > 0 {
			return errHeaders
		}
		certificates, err := x509.ParseCertificates(block.Bytes)
		if err != nil {
			return fmt.Errorf("parse certificate: %w", err)
		}
		if len(certificates) == 0 {
			return errNoCertificate
		}
		if anchors {
			if len(certificates) > 1 || !certificates[0].IsCA || !certificates[0].BasicConstraintsValid {
				return errNoAuthority
			}
			if slices.ContainsFunc(seen,
				func(other []byte) bool { return bytes.Equal(other, block.Bytes) }) {
				return errors.New("contains a duplicate certificate")
			}
		}
		seen = append(seen, block.Bytes)
	}
	if len(seen) == 0 {
		return errNoCertificate
	}
	return nil
}
