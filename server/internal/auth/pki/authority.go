package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"
)

const (
	// AuthorityValidity is how long a certificate authority is valid.
	AuthorityValidity = 10 * 365 * 24 * time.Hour
	// Validity is how long a certificate is valid by default, as with kubeadm.
	Validity = 365 * 24 * time.Hour
	// clockSkew is how far the clocks of clients may be behind.
	clockSkew = 5 * time.Minute
)

// Pair is a certificate and its key, PEM encoded.
type Pair struct {
	Cert, Key []byte
}

// TLS returns the pair as a [tls.Certificate].
func (p Pair) TLS() (tls.Certificate, error) { return tls.X509KeyPair(p.Cert, p.Key) }

// Authority is a certificate authority.
type Authority struct {
	// Pair is the CA certificate, which clients trust, and its key.
	Pair
	cert *x509.Certificate
	key  crypto.Signer
	now  func() time.Time
}

// newAuthority returns an authority with a new self-signed certificate for the given key. If key is
// nil, it generates a key.
func newAuthority(name string, key crypto.Signer, now func() time.Time) (*Authority, error) {
	if key == nil {
		var err error
		if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
			return nil, fmt.Errorf("generate the key of authority %s: %w", name, err)
		}
	}
	template := &x509.Certificate{
		Subject:   pkix.Name{CommonName: name},
		DNSNames:  []string{name},
		NotBefore: now().Add(-clockSkew).UTC(),
		NotAfter:  now().Add(AuthorityValidity).UTC(),
		KeyUsage: x509.KeyUsageKeyEncipherment | x509.KeyUsageDigitalSignature |
			x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	a := &Authority{key: key, now: now}
	cert, encoded, err := sign(template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign the certificate of authority %s: %w", name, err)
	}
	a.cert = cert
	a.Pair, err = newPair(encoded, key)
	return a, err
}

// Client issues a client certificate for a user who is a member of groups. A validity of zero means
// [Validity].
func (a *Authority) Client(user string, groups []string, validity time.Duration) (Pair, error) {
	if user == "" {
		return Pair{}, errors.New("a client certificate requires a user name")
	}
	return a.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, validity)
}

// Server issues a serving certificate for names, which are DNS names or IP addresses. The first
// name is the common name.
func (a *Authority) Server(names []string, validity time.Duration) (Pair, error) {
	if len(names) == 0 {
		return Pair{}, errors.New("a serving certificate requires a DNS name or an IP address")
	}
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: names[0]},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	return a.issue(template, validity)
}

// Sign issues a certificate with the subject, the names and the usages of template, for the public
// key of somebody else. The certificate is PEM encoded. A validity of zero means [Validity].
func (a *Authority) Sign(
	template *x509.Certificate, public crypto.PublicKey, validity time.Duration,
) ([]byte, error) {
	if validity < 0 {
		return nil, fmt.Errorf("a certificate cannot be valid for %s", validity)
	}
	if validity == 0 {
		validity = Validity
	}
	template.BasicConstraintsValid = true
	template.NotBefore = a.now().Add(-clockSkew).UTC()
	template.NotAfter = a.now().Add(validity).UTC()
	// A chain is valid only as long as all its certificates are.
	if template.NotAfter.After(a.cert.NotAfter) {
		template.NotAfter = a.cert.NotAfter
	}
	_, cert, err := sign(template, a.cert, public, a.key)
	if err != nil {
		return nil, fmt.Errorf("sign the certificate of %s: %w", template.Subject, err)
	}
	return cert, nil
}

// issue issues a certificate for a new key.
func (a *Authority) issue(template *x509.Certificate, validity time.Duration) (Pair, error) {
	template.KeyUsage = x509.KeyUsageKeyEncipherment | x509.KeyUsageDigitalSignature
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("generate the key of %s: %w", template.Subject, err)
	}
	cert, err := a.Sign(template, key.Public(), validity)
	if err != nil {
		return Pair{}, err
	}
	return newPair(cert, key)
}

func newPair(cert []byte, key crypto.Signer) (Pair, error) {
	encoded, err := encodeKey(key)
	if err != nil {
		return Pair{}, err
	}
	return Pair{Cert: cert, Key: encoded}, nil
}

// sign creates a certificate for a public key. It returns the certificate and its PEM encoding.
func sign(
	template, parent *x509.Certificate, public crypto.PublicKey, signer crypto.Signer,
) (*x509.Certificate, []byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, nil, err
	}
	template.SerialNumber = serial.Add(serial, big.NewInt(1)) // RFC 5280: positive, at most 20 octets
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, signer)
	if err != nil {
		return nil, nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, nil, err
	}
	return cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

func encodeKey(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

func encodePublicKey(key crypto.PublicKey) ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), nil
}
