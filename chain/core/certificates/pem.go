package certificates

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

const (
	requestBlock     = "CERTIFICATE REQUEST"
	certificateBlock = "CERTIFICATE"
)

var (
	errNoRequest     = errors.New("must be a PEM block of type " + requestBlock)
	errNoCertificate = errors.New("must have at least one PEM block of type " + certificateBlock)
	errHeaders       = errors.New("PEM blocks must have no headers")
)

func parseRequest(data []byte) error {
	block, _ := pem.Decode(data)
	if block == nil || block.Type != requestBlock {
		return errNoRequest
	}
	_, err := x509.ParseCertificateRequest(block.Bytes)
	return err
}

// parseCertificates wants PEM blocks of certificates and nothing else but text around them. distinct refuses one that is there twice.
func parseCertificates(data []byte, distinct bool) error {
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
		for _, other := range seen {
			if distinct && bytes.Equal(other, block.Bytes) {
				return errors.New("the same certificate is there twice")
			}
		}
		seen = append(seen, block.Bytes)
	}
	if len(seen) == 0 {
		return errNoCertificate
	}
	return nil
}
