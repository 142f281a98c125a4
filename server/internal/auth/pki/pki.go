package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"fmt"
	"slices"
	"time"
)

const (
	// AdminUser is the user of the admin certificate. The user is in the group system:masters,
	// which no authorizer can restrict.
	AdminUser  = "kubernetes-super-admin"
	adminGroup = "system:masters"
	// ProxyUser is the common name of the aggregator's client certificate for extension API
	// servers.
	ProxyUser = "front-proxy-client"

	authorityName  = "kinproc-ca"
	proxyAuthority = "kinproc-front-proxy-ca"
)

// Options configures a [PKI].
type Options struct {
	// Names are additional DNS names and IP addresses of the server, such as the addresses it
	// listens on and the first service IP. localhost, kubernetes,
	// kubernetes.default(.svc(.cluster.local)), 127.0.0.1 and ::1 are always included.
	Names []string
	// Shared is a directory with the authorities and the service account key of several control
	// planes. What is missing there is created. It is empty if the control plane has its own.
	Shared string
	// Now is the clock; it defaults to time.Now.
	Now func() time.Time
}

func (o Options) now() time.Time {
	if o.Now != nil {
		return o.Now()
	}
	return time.Now()
}

// names returns all names of the server without duplicates.
func (o Options) names() []string {
	names := []string{
		"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
		"kubernetes.default.svc.cluster.local", "127.0.0.1", "::1",
	}
	for _, name := range o.Names {
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// PKI holds everything that a control plane needs to authenticate itself and others.
type PKI struct {
	// CA signs serving and client certificates.
	CA *Authority
	// FrontProxyCA signs the client certificates of proxies that pass the user in request headers.
	FrontProxyCA *Authority
	// Serving is the server's serving certificate.
	Serving Pair
	// Admin is the client certificate of [AdminUser].
	Admin Pair
	// Proxy is the aggregator's client certificate for extension API servers.
	Proxy Pair
	// ServiceAccountKey signs service account tokens.
	ServiceAccountKey crypto.Signer
}

// New creates a PKI in memory.
func New(o Options) (*PKI, error) {
	p := &PKI{}
	var err error
	if o.Shared == "" {
		err = p.generate(o)
	} else {
		err = p.share(o)
	}
	if err != nil {
		return nil, err
	}
	for _, leaf := range p.leaves(o) {
		if *leaf.pair, err = leaf.issue(); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// generate creates the authorities and the service account key.
func (p *PKI) generate(o Options) (err error) {
	if p.CA, err = newAuthority(authorityName, nil, o.now); err != nil {
		return err
	}
	if p.FrontProxyCA, err = newAuthority(proxyAuthority, nil, o.now); err != nil {
		return err
	}
	if p.ServiceAccountKey, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return fmt.Errorf("generate the service account key: %w", err)
	}
	return nil
}

// leaf describes a certificate that an authority signs.
type leaf struct {
	file      string
	pair      *Pair
	authority *Authority
	// A serving certificate must be valid for names, and a client certificate for user and groups.
	names  []string
	user   string
	groups []string
	// The default of validity is Validity.
	validity time.Duration
}

// leaves returns the certificates of a PKI, whose authorities must be set.
func (p *PKI) leaves(o Options) []leaf {
	return []leaf{
		{file: "apiserver", pair: &p.Serving, authority: p.CA, names: o.names()},
		{file: "admin", pair: &p.Admin, authority: p.CA, user: AdminUser, groups: []string{adminGroup}},
		{file: "front-proxy-client", pair: &p.Proxy, authority: p.FrontProxyCA, user: ProxyUser},
	}
}

// RenewServing issues a new serving certificate that the same authority has signed. If the PKI is
// kept in a directory, the new certificate replaces the old one there.
func (p *PKI) RenewServing(dir string, o Options) (Pair, error) {
	serving := p.leaves(o)[0]
	if dir == "" {
		return serving.issue()
	}
	return directory{path: dir, create: true}.leaf(serving)
}

func (l leaf) issue() (Pair, error) {
	if len(l.names) > 0 {
		return l.authority.Server(l.names, l.validity)
	}
	return l.authority.Client(l.user, l.groups, l.validity)
}
