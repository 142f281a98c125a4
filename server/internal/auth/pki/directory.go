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

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// Ensure loads the PKI in a directory and creates what is missing. The files have the same names as
// kubeadm's. A certificate is reissued if it has less than a third of its validity left, was signed
// by another authority, or lacks one of the names. The certificate of an expiring authority is
// renewed with the same key, so the certificates it has signed remain trusted. The keys of
// authorities and the service account key are never replaced: if such a file is unusable, Ensure
// returns an error and leaves the file unchanged.
func Ensure(dir string, o Options) (*PKI, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the directory for certificates: %w", err)
	}
	return open(directory{path: dir, create: true}, o)
}

// Load loads the PKI that [Ensure] created in a directory without changing it. It returns an error
// if a certificate has expired.
func Load(dir string, o Options) (*PKI, error) {
	return open(directory{path: dir}, o)
}

func open(d directory, o Options) (*PKI, error) {
	p := &PKI{}
	var err error
	if o.Shared == "" {
		err = p.load(d, o)
	} else {
		err = p.share(o)
	}
	if err != nil {
		return nil, err
	}
	for _, leaf := range p.leaves(o) {
		if *leaf.pair, err = d.leaf(leaf); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// load loads the authorities and the service account key.
func (p *PKI) load(d directory, o Options) (err error) {
	if p.CA, err = d.authority("ca", authorityName, o.now); err != nil {
		return err
	}
	if p.FrontProxyCA, err = d.authority("front-proxy-ca", proxyAuthority, o.now); err != nil {
		return err
	}
	p.ServiceAccountKey, err = d.signingKey("sa")
	return err
}

// share loads the authorities and the service account key that several control planes share. The
// lock lets only one of them create what is missing.
func (p *PKI) share(o Options) (err error) {
	d := directory{path: o.Shared, create: true}
	if err := os.MkdirAll(d.path, 0o700); err != nil {
		return fmt.Errorf("create the directory for shared keys: %w", err)
	}
	lock, err := fileutil.LockFile(d.file(".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("lock the directory of shared keys: %w", err)
	}
	return errors.Join(p.load(d, o), lock.Close())
}

// directory holds keys and certificates. Unless create is set, it is read-only.
type directory struct {
	path   string
	create bool
}

func (d directory) file(name string) string { return filepath.Join(d.path, name) }

// read returns the content of a file, or nil if it does not exist.
func (d directory) read(name string) ([]byte, error) {
	data, err := os.ReadFile(d.file(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

func (d directory) missing(name string) error {
	return fmt.Errorf(
		"%s does not exist: first start a control plane with this directory to create the file",
		d.file(name))
}

// key reads a private key. It returns nil if the file does not exist.
func (d directory) key(name string) (crypto.Signer, error) {
	data, err := d.read(name)
	if err != nil || data == nil {
		return nil, err
	}
	parsed, err := keyutil.ParsePrivateKeyPEM(data)
	if err != nil {
		return nil, fmt.Errorf("%s holds no private key (%w): restore it from a backup, "+
			"or remove it and the certificates issued with it to generate new ones", d.file(name), err)
	}
	key, ok := parsed.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("%s holds a %T, which cannot be used for signing", d.file(name), parsed)
	}
	if info, err := os.Stat(d.file(name)); err == nil && d.create && info.Mode().Perm()&0o077 != 0 {
		if err := os.Chmod(d.file(name), 0o600); err != nil {
			return nil, fmt.Errorf("restrict access to a private key: %w", err)
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
		return nil, fmt.Errorf("%s has no key %s: restore the key from a backup, "+
			"or remove the certificate to create a new authority, which clients must then trust",
			d.file(name+".crt"), d.file(name+".key"))
	case key == nil && !d.create:
		return nil, d.missing(name + ".key")
	case data == nil && !d.create:
		return nil, d.missing(name + ".crt")
	case data == nil:
		// There is no authority yet, or an interrupted start left only a key, which is then used.
		return d.makeAuthority(name, commonName, key, now)
	}

	certs, err := cert.ParseCertsPEM(data)
	if err != nil {
		return nil, fmt.Errorf("%s holds no certificate (%w): restore it from a backup, "+
			"or remove it to issue a new one with the same key", d.file(name+".crt"), err)
	}
	if !certs[0].IsCA {
		return nil, fmt.Errorf("%s is not the certificate of an authority: restore it from a backup, "+
			"or remove it to issue a new one", d.file(name+".crt"))
	}
	if !samePublicKey(certs[0].PublicKey, key.Public()) {
		return nil, fmt.Errorf("%s and %s do not belong together: restore both from a backup, or remove "+
			"the certificate to issue a new one with the key", d.file(name+".crt"), d.file(name+".key"))
	}
	if expiring(certs[0], now()) {
		if d.create {
			// Keep the old name, because certificates refer to it as their issuer.
			return d.makeAuthority(name, certs[0].Subject.CommonName, key, now)
		}
		if now().After(certs[0].NotAfter) {
			return nil, fmt.Errorf("%s expired on %s: start the control plane again to renew it",
				d.file(name+".crt"), certs[0].NotAfter.Format(time.DateOnly))
		}
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", d.file(name+".key"), err)
	}
	return &Authority{Pair: Pair{Cert: data, Key: keyPEM}, cert: certs[0], key: key, now: now}, nil
}

func (d directory) makeAuthority(
	name, commonName string, key crypto.Signer, now func() time.Time,
) (*Authority, error) {
	a, err := newAuthority(commonName, key, now)
	if err != nil {
		return nil, err
	}
	return a, d.writePair(name, a.Pair)
}

// leaf returns the stored certificate if it is usable, and otherwise a new one.
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
	unfit := l.check(pair, d.create)
	if unfit == nil {
		return pair, nil
	}
	if !d.create {
		return Pair{},
			fmt.Errorf("%s cannot be used: %w: start the control plane again to issue a new one",
				d.file(l.file+".crt"), unfit)
	}
	if pair, err = l.issue(); err != nil {
		return Pair{}, err
	}
	return pair, d.writePair(l.file, pair)
}

// check returns the reason why the pair is not usable, if any. With renew, a pair that is about to
// expire is not usable either.
func (l leaf) check(pair Pair, renew bool) error {
	if pair.Cert == nil || pair.Key == nil {
		return errors.New("the certificate or its key is missing")
	}
	loaded, err := pair.TLS()
	if err != nil {
		return err
	}
	c := loaded.Leaf
	if err := c.CheckSignatureFrom(l.authority.cert); err != nil {
		return fmt.Errorf("it was signed by another authority: %w", err)
	}
	if now := l.authority.now(); now.Before(c.NotBefore) || now.After(c.NotAfter) ||
		renew && expiring(c, now) {
		return fmt.Errorf("it is valid from %s to %s", c.NotBefore.Format(time.DateOnly),
			c.NotAfter.Format(time.DateOnly))
	}
	for _, name := range l.names {
		if err := c.VerifyHostname(name); err != nil {
			return err
		}
	}
	if len(l.names) == 0 && (c.Subject.CommonName != l.user ||
		!sets.New(c.Subject.Organization...).Equal(sets.New(l.groups...))) {
		return fmt.Errorf("it was issued to %s", c.Subject)
	}
	return nil
}

// signingKey reads or creates the key name.key, and writes its public half to name.pub for programs
// that verify tokens.
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

// writePair writes the key first, because an interrupted start can be resumed with a key but no
// certificate, but not the other way around.
func (d directory) writePair(name string, pair Pair) error {
	if err := writeFile(d.file(name+".key"), pair.Key); err != nil {
		return err
	}
	return writeFile(d.file(name+".crt"), pair.Cert)
}

// Renewal returns when a certificate should be renewed: when a third of its validity is left.
func Renewal(c *x509.Certificate) time.Time {
	return c.NotAfter.Add(-c.NotAfter.Sub(c.NotBefore) / 3)
}

// expiring reports whether a certificate is not valid or should be renewed.
func expiring(c *x509.Certificate, now time.Time) bool {
	return now.Before(c.NotBefore) || now.After(Renewal(c))
}

func samePublicKey(a, b crypto.PublicKey) bool {
	key, ok := a.(interface{ Equal(crypto.PublicKey) bool })
	return ok && key.Equal(b)
}

// writeFile atomically replaces a file, so that a crash leaves either the old or the new content.
// Only the file's owner can read it.
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
