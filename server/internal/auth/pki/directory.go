package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// Ensure loads the PKI of a directory, whose files are named as kubeadm's, and makes what is missing in it. Certificates that have
// expired or have less than a third of their time left, that another authority signed or that lack one of the names are made anew. An
// authority that expires is renewed with its old key, so what it signed stays trusted. Authorities' keys and the service account key are
// never replaced: if such a file cannot be used, Ensure says so and changes nothing.
func Ensure(dir string, o Options) (*PKI, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory for certificates: %w", err)
	}
	return open(directory{path: dir, create: true}, o)
}

// Load loads the PKI that [Ensure] left in a directory and changes nothing there; what has expired is an error.
func Load(dir string, o Options) (*PKI, error) {
	return open(directory{path: dir}, o)
}

func open(d directory, o Options) (*PKI, error) {
	p := &PKI{}
	var err error
	if p.CA, err = d.authority("ca", authorityName, o.now); err != nil {
		return nil, err
	}
	if p.FrontProxyCA, err = d.authority("front-proxy-ca", proxyAuthority, o.now); err != nil {
		return nil, err
	}
	for _, leaf := range p.leaves(o) {
		if *leaf.pair, err = d.leaf(leaf); err != nil {
			return nil, err
		}
	}
	if p.ServiceAccountKey, err = d.signingKey("sa"); err != nil {
		return nil, err
	}
	return p, nil
}

// directory keeps keys and certificates. Without create it is only read.
type directory struct {
	path   string
	create bool
}

func (d directory) file(name string) string { return filepath.Join(d.path, name) }

// read returns nil if there is no such file.
func (d directory) read(name string) ([]byte, error) {
	data, err := os.ReadFile(d.file(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

func (d directory) missing(name string) error {
	return fmt.Errorf("%s does not exist: start a control plane with this directory first, it makes the file", d.file(name))
}

// key reads a private key; nil stands for no file.
func (d directory) key(name string) (crypto.Signer, error) {
	data, err := d.read(name)
	if err != nil || data == nil {
		return nil, err
	}
	parsed, err := keyutil.ParsePrivateKeyPEM(data)
	if err != nil {
		return nil, fmt.Errorf("%s holds no private key (%w): restore it from a copy, or remove it and the certificates made with it "+
			"to have new ones made", d.file(name), err)
	}
	key, ok := parsed.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("%s holds a %T, which cannot sign", d.file(name), parsed)
	}
	if info, err := os.Stat(d.file(name)); err == nil && d.create && info.Mode().Perm()&0o077 != 0 {
		if err := os.Chmod(d.file(name), 0o600); err != nil {
			return nil, fmt.Errorf("keep others from reading a private key: %w", err)
		}
	}
	return key, nil
}

func (d directory) authority(name, commonName string, now func() time.Time) (*Authority, error) {
	key, err := d.key(name + ".key")
	if err != nil {
		return nil, err
	}
	data, err := d.read(name + ".crt")
	if err != nil {
		return nil, err
	}
	switch {
	case key == nil && data != nil:
		return nil, fmt.Errorf("%s has no key %s: restore it from a copy, or remove the certificate to have a new authority made, "+
			"which clients then have to trust", d.file(name+".crt"), d.file(name+".key"))
	case key == nil && !d.create:
		return nil, d.missing(name + ".key")
	case data == nil && !d.create:
		return nil, d.missing(name + ".crt")
	case data == nil:
		// No certificate, or no trace of an authority: with a key left of an interrupted start, it is the one to use.
		return d.makeAuthority(name, commonName, key, now)
	}

	certs, err := cert.ParseCertsPEM(data)
	if err != nil {
		return nil, fmt.Errorf("%s holds no certificate (%w): restore it from a copy, or remove it to have it made again with the same key",
			d.file(name+".crt"), err)
	}
	if !certs[0].IsCA {
		return nil, fmt.Errorf("%s is not the certificate of an authority: restore it from a copy, or remove it to have it made again",
			d.file(name+".crt"))
	}
	if !samePublicKey(certs[0].PublicKey, key.Public()) {
		return nil, fmt.Errorf("%s and %s do not belong together: restore both from a copy, or remove the certificate to have it made again "+
			"with the key", d.file(name+".crt"), d.file(name+".key"))
	}
	if expiring(certs[0], now()) {
		if d.create {
			// Under the old name, for the certificates that name it as their issuer.
			return d.makeAuthority(name, certs[0].Subject.CommonName, key, now)
		}
		if now().After(certs[0].NotAfter) {
			return nil, fmt.Errorf("%s expired on %s: start the control plane again, it renews the certificate",
				d.file(name+".crt"), certs[0].NotAfter.Format(time.DateOnly))
		}
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", d.file(name+".key"), err)
	}
	return &Authority{Pair: Pair{Cert: data, Key: keyPEM}, cert: certs[0], key: key, now: now}, nil
}

func (d directory) makeAuthority(name, commonName string, key crypto.Signer, now func() time.Time) (*Authority, error) {
	a, err := newAuthority(commonName, key, now)
	if err != nil {
		return nil, err
	}
	return a, d.writePair(name, a.Pair)
}

// leaf returns the stored certificate if it serves its purpose, else a new one.
func (d directory) leaf(l leaf) (Pair, error) {
	certPEM, err := d.read(l.file + ".crt")
	if err != nil {
		return Pair{}, err
	}
	keyPEM, err := d.read(l.file + ".key")
	if err != nil {
		return Pair{}, err
	}
	pair := Pair{Cert: certPEM, Key: keyPEM}
	unfit := l.judge(pair, d.create)
	if unfit == nil {
		return pair, nil
	}
	if !d.create {
		return Pair{}, fmt.Errorf("%s cannot be used: %w: start the control plane again, it makes a new one", d.file(l.file+".crt"), unfit)
	}
	if pair, err = l.issue(); err != nil {
		return Pair{}, err
	}
	return pair, d.writePair(l.file, pair)
}

// judge says why the pair does not do; with renew, it has to do for a while.
func (l leaf) judge(pair Pair, renew bool) error {
	if pair.Cert == nil || pair.Key == nil {
		return errors.New("the certificate or its key is not there")
	}
	loaded, err := pair.TLS()
	if err != nil {
		return err
	}
	c := loaded.Leaf
	if err := c.CheckSignatureFrom(l.authority.cert); err != nil {
		return fmt.Errorf("another authority signed it: %w", err)
	}
	if now := l.authority.now(); now.Before(c.NotBefore) || now.After(c.NotAfter) || renew && expiring(c, now) {
		return fmt.Errorf("it is valid from %s to %s", c.NotBefore.Format(time.DateOnly), c.NotAfter.Format(time.DateOnly))
	}
	for _, name := range l.names {
		if err := c.VerifyHostname(name); err != nil {
			return err
		}
	}
	if len(l.names) == 0 && (c.Subject.CommonName != l.user || !sets.New(c.Subject.Organization...).Equal(sets.New(l.groups...))) {
		return fmt.Errorf("it is made out to %s", c.Subject)
	}
	return nil
}

// signingKey reads or makes the key name.key, and writes its public half next to it for whoever verifies tokens.
func (d directory) signingKey(name string) (crypto.Signer, error) {
	key, err := d.key(name + ".key")
	if err != nil {
		return nil, err
	}
	if !d.create {
		if key == nil {
			return nil, d.missing(name + ".key")
		}
		return key, nil
	}
	if key == nil {
		if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
			return nil, fmt.Errorf("generate %s: %w", d.file(name+".key"), err)
		}
		keyPEM, err := encodeKey(key)
		if err != nil {
			return nil, fmt.Errorf("encode %s: %w", d.file(name+".key"), err)
		}
		if err := writeFile(d.file(name+".key"), keyPEM); err != nil {
			return nil, err
		}
	}
	public, err := encodePublicKey(key.Public())
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", d.file(name+".pub"), err)
	}
	if old, err := d.read(name + ".pub"); err == nil && string(old) == string(public) {
		return key, nil
	}
	return key, writeFile(d.file(name+".pub"), public)
}

// writePair writes the key first: a key without a certificate can be continued from, the reverse cannot.
func (d directory) writePair(name string, pair Pair) error {
	if err := writeFile(d.file(name+".key"), pair.Key); err != nil {
		return err
	}
	return writeFile(d.file(name+".crt"), pair.Cert)
}

// expiring reports whether a certificate is not valid or has less than a third of its time left.
func expiring(c *x509.Certificate, now time.Time) bool {
	return now.Before(c.NotBefore) || now.After(c.NotAfter.Add(-c.NotAfter.Sub(c.NotBefore)/3))
}

func samePublicKey(a, b crypto.PublicKey) bool {
	key, ok := a.(interface{ Equal(crypto.PublicKey) bool })
	return ok && key.Equal(b)
}

// writeFile replaces a file in one step, so that a crash leaves the old one or the new one. Only its owner can read it.
func writeFile(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, errors.Join(err, os.Remove(f.Name())))
	}
	return nil
}
